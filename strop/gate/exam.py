"""An exam: questions for a forward pass, and the answers of the reference and the baseline.

The answers are computed in processes that never run a candidate and are kept by the judge, so no
candidate can map them. A candidate sits the exam on the path that serves: prefill, then decode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from strop.core import NumericsPolicy, Tier
from strop.engine.contract import Array, Batch, Engine, Role
from strop.gate.numerics import POLICY

__all__ = ["Exam"]

Answers = tuple[list[Array], list[Array]]


@dataclass(slots=True)
class Exam:
    """Questions for one tier. Answers are computed at the first need and kept if `keep`."""

    tier: Tier = Tier.FAST
    questions: Sequence[Batch] = ()
    keep: bool = True
    """False for the long final exam, whose answers would not fit into memory."""
    bit_exact: bool = False
    thresholds: NumericsPolicy = POLICY
    repeats: int = 5
    """How often one question is asked again."""
    known: dict[int, Answers] = field(default_factory=dict)

    def answers(self, engine: Engine, number: int) -> Answers:
        """Return (reference outputs, baseline outputs) of one question."""
        if number in self.known:
            return self.known[number]
        batch = self.questions[number]
        baseline = engine.score(batch, Role.BASELINE, self.tier).outputs
        # Bit-exact outputs need no reference: the baseline, run again, shows its own noise.
        role = Role.BASELINE if self.bit_exact else Role.REFERENCE
        pair = (engine.score(batch, role, self.tier).outputs, baseline)
        if self.keep:
            self.known[number] = pair
        return pair

    @property
    def shortest(self) -> int:
        """Number of the question with the fewest tokens that has more than one."""
        sizes = [sum(map(len, (*q.prompts, *q.forced))) for q in self.questions]
        return min(range(len(sizes)), key=lambda i: (sizes[i] < 2, sizes[i]))
