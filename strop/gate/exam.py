"""An exam: questions for a forward pass, and the answers of the reference and the baseline.

The answers are computed in processes that never run a candidate and are kept by the judge, so no
candidate can map them. A candidate sits the exam on the path that serves: prefill, then decode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from strop.core import Check, Fault, Reason, Tier
from strop.engine.contract import Array, Batch, Engine, Role
from strop.gate import numerics

__all__ = ["Exam", "noise", "sit"]


@dataclass(slots=True)
class Exam:
    """Batches for one tier. Answers are computed at the first need and kept if `keep`."""

    engine: Engine
    tier: Tier
    batches: Sequence[Batch]
    keep: bool = True
    """False for the long final exam, whose answers would not fit into memory."""
    policy: str = "tolerance"
    same_precision: bool = True
    slack: float = 1.0
    """See `numerics.judge`; more than one only for the short exams of a search."""
    known: dict[int, tuple[list[Array], list[Array]]] = field(default_factory=dict)

    def answers(self, index: int) -> tuple[list[Array], list[Array]]:
        """Return (reference outputs, baseline outputs) of one batch."""
        if index in self.known:
            return self.known[index]
        batch = self.batches[index]
        baseline = self.engine.score(batch, Role.BASELINE, self.tier)
        role = Role.BASELINE if self.policy == "bit_exact" else Role.REFERENCE
        pair = (self.engine.score(batch, role, self.tier), baseline)
        if self.keep:
            self.known[index] = pair
        return pair


def sit(exam: Exam, version: str) -> list[Check]:
    """Have a loaded version sit the exam.

    Raises:
        Fault: whatever the outputs are guilty of.
    """
    exam.engine.activate(version, exam.tier)
    evidence = numerics.Evidence()
    exact: list[Check] = []
    previous: list[Array] = []
    for index, batch in enumerate(exam.batches):
        outputs = exam.engine.score(batch)
        _demand_fresh(previous, outputs)
        previous = outputs
        if index == 0:
            _demand_repeatable(exam, batch, outputs)
        reference, baseline = exam.answers(index)
        if exam.policy == "bit_exact":
            exact.append(numerics.bit_exact(baseline, reference, outputs))
        else:
            _observe(evidence, batch, reference, baseline, outputs)
    if exact:
        return [Check("bit_exact", True, f"{len(exact)} batches equal the baseline bit for bit")]
    if not exam.same_precision:
        return numerics.judge_precision(evidence)
    return numerics.judge(evidence, slack=exam.slack)


def noise(exam: Exam) -> float:
    """Return the largest |B - R| of any logit in the exam: what the baseline itself is off by."""
    worst = 0.0
    for index in range(len(exam.batches)):
        for r, b in zip(*exam.answers(index), strict=True):
            worst = max(worst, float(np.abs(np.subtract(b, r, dtype=np.float64)).max()))
    return worst


def _observe(
    evidence: numerics.Evidence,
    batch: Batch,
    reference: list[Array],
    baseline: list[Array],
    outputs: list[Array],
) -> None:
    forced = batch.forced or ((),) * len(outputs)
    for i, (r, b, c) in enumerate(zip(reference, baseline, outputs, strict=True)):
        text = (batch.prompts[i] + forced[i])[1:] if batch.prompts else ()
        rows_r, rows_b, rows_c = map(numerics.as_rows, (r, b, c))
        numerics.observe(evidence, rows_r, rows_b, rows_c, text)


def _demand_fresh(previous: list[Array], outputs: list[Array]) -> None:
    """Other inputs must give other outputs."""
    for old, new in zip(previous, outputs, strict=False):
        rows = min(len(old), len(new)) if old.ndim and new.ndim else 0
        if rows and old.shape[1:] == new.shape[1:] and (old[:rows] == new[:rows]).all():
            raise Fault(Reason.NUMERICS, "stale: other inputs gave the same outputs")


def _demand_repeatable(exam: Exam, batch: Batch, outputs: list[Array]) -> None:
    """The same input must give the same bits, unless the baseline does not repeat either."""
    again = exam.engine.score(batch)
    if _same(outputs, again):
        return
    first, second = (exam.engine.score(batch, Role.BASELINE, exam.tier) for _ in range(2))
    if _same(first, second):
        raise Fault(Reason.NONDETERMINISTIC, "the same input gave other bits; the baseline repeats itself")


def _same(first: list[Array], second: list[Array]) -> bool:
    return [a.tobytes() for a in first] == [b.tobytes() for b in second]
