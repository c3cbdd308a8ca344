"""THE LIST: every check between a candidate and production, in the order in which it is run.

What needs no check because it cannot be otherwise is said in docs/decisions/0007-checks.md: where
the answers live, whose clock counts, what a candidate cannot foresee.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from strop.core import Tier
from strop.gate import (
    admission,
    fair_baseline,
    intact,
    isolation,
    outputs,
    physics,
    poison,
    quality,
    repeat,
    restore,
    speed,
    timed_outputs,
)
from strop.gate.case import Case

__all__ = ["CHECKS", "Gate", "When"]


class When(Enum):
    """The moments at which the judge asks."""

    FIRST = "before any of its code runs"
    ANSWERED = "at each answer of a tier's exam"
    SAT = "when it has sat the whole exam"
    TIMED = "when it was timed on a tier"
    LAST = "when it has passed all else"


@dataclass(frozen=True, slots=True)
class Gate:
    """One check. `demand` returns what it measured, None where it does not apply, or raises Fault."""

    name: str
    when: When
    demand: Callable[[Case], str | None]
    says: str
    tiers: tuple[Tier, ...] = tuple(Tier)


_SLOW = (Tier.SLOW,)

CHECKS: tuple[Gate, ...] = (
    Gate("isolation", When.FIRST, isolation.demand, "every isolation layer holds, or the code is trusted"),
    Gate("admission", When.FIRST, admission.demand, "files, manifest and build() are well-formed"),
    Gate("outputs", When.ANSWERED, outputs.demand, "shapes, dtypes are the baseline's, numbers finite"),
    Gate("inputs", When.ANSWERED, intact.inputs, "the inputs are what they were"),
    Gate("late_write", When.ANSWERED, intact.outputs, "the outputs are the same 50 ms later"),
    Gate("bit_exact", When.ANSWERED, quality.bit_exact, "the baseline's bits, where the policy says so"),
    Gate("repeat", When.SAT, repeat.demand, "same input, same bits: at other addresses, under load"),
    Gate("poison", When.SAT, poison.demand, "garbage in new memory changes no bit"),
    Gate("error", When.SAT, quality.error, "as near to the reference as the baseline is"),
    Gate("divergence", When.SAT, quality.divergence, "KL to the reference as small as the baseline's"),
    Gate("greedy", When.SAT, quality.greedy, "the tokens that the reference is sure of"),
    Gate("perplexity", When.SAT, quality.perplexity, "the text as likely as before"),
    Gate("speed", When.TIMED, speed.demand, "a gain proven by interleaved pairs, no cluster slower"),
    Gate("physics", When.TIMED, physics.demand, "no step faster than its roofline floor", _SLOW),
    Gate("timed_outputs", When.TIMED, timed_outputs.demand, "what was timed, computed elsewhere", _SLOW),
    Gate("fair_baseline", When.TIMED, fair_baseline.demand, "the baseline as fast as elsewhere", _SLOW),
    Gate("restore", When.LAST, restore.demand, "without it the baseline's bits are back"),
)
