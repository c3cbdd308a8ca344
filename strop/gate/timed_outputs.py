"""What was timed is what is checked, for a module: outputs of timed calls against the baseline's."""

from __future__ import annotations

import random
from collections.abc import Sequence

from strop.core import Check, Fault, Reason
from strop.engine.contract import Array, Batch, Engine, Role
from strop.gate import numerics

__all__ = ["recheck"]

_MOST = 16
"""Timed calls that are looked at; which ones is drawn after the fact."""


def recheck(
    engine: Engine,
    calls: Sequence[tuple[Batch, tuple[Array, ...]]],
    policy: str,
    rng: random.Random,
) -> Check:
    """Compare outputs of timed calls with those of a process that never ran a candidate.

    Args:
        engine: the engine.
        calls: (batch, the candidate's outputs) of timed calls.
        policy: bit_exact, or tolerance.
        rng: the judge's own.

    Raises:
        Fault: numerics, shape, dtype or nonfinite.
    """
    chosen = rng.sample(list(calls), min(_MOST, len(calls)))
    evidence = numerics.Evidence()
    for batch, outputs in chosen:
        baseline = engine.score(batch, Role.BASELINE)
        if len(baseline) != len(outputs):
            raise Fault(Reason.SHAPE, f"{len(outputs)} outputs where {len(baseline)} were expected")
        if policy == "bit_exact":
            numerics.bit_exact(baseline, engine.score(batch, Role.BASELINE), outputs)
            continue
        for r, b, c in zip(engine.score(batch, Role.REFERENCE), baseline, outputs, strict=True):
            rows_r, rows_b, rows_c = map(numerics.as_rows, (r, b, c))
            numerics.observe(evidence, rows_r, rows_b, rows_c)
    if policy != "bit_exact":
        numerics.judge(evidence)
    return Check("timed_outputs", True, f"{len(chosen)} of {len(calls)} timed calls checked again")
