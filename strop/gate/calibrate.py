"""Bounds of the numerics from what legal reorderings do to this very baseline.

A bound that is a constant is a guess about every model. Here the baseline's own sums are taken in
other orders and on other thread counts, and these perturbations sit the candidates' exam; what is
at most a margin beyond the furthest of them passes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace

from strop.core import Candidate, Fault, NumericsPolicy, StropError
from strop.engine.contract import Engine
from strop.gate import numerics
from strop.gate.exam import Exam

__all__ = ["Moved", "bounds", "moved"]

_MARGIN = 1.25
"""Beyond the furthest perturbation: there are few of them and many legal rewrites."""
_MOST = 4.0
"""A calibrated bound is at most so many times the policy's own."""


@dataclass(frozen=True, slots=True)
class Moved:
    """How far one perturbation is from the reference, as ratios to the baseline's distance."""

    median: float
    tail: float
    worst: float
    kl: float


def moved(engine: Engine, exam: Exam, perturbation: Candidate) -> Moved | None:
    """Have a perturbation sit the exam; None where the model has nothing that it perturbs."""
    evidence = numerics.Evidence()
    try:
        engine.load(perturbation, exam.tier)
        engine.activate(perturbation.id, exam.tier)
        for number, question in enumerate(exam.questions):
            reference, baseline = exam.answers(engine, number)
            outputs = engine.score(question).outputs
            numerics.observe_batch(evidence, question, reference, baseline, outputs)
    except Fault:
        return None
    kl_b, kl_c = (float(evidence.joined(name).mean()) for name in ("kl_b", "kl_c"))
    # Below the floor a ratio of two roundings says nothing.
    kl = kl_c / kl_b if kl_c > numerics.POLICY.kl_floor and kl_b > 0 else 1.0
    return Moved(*numerics.error_ratios(evidence), kl)


def bounds(base: NumericsPolicy, seen: Sequence[Moved], slack: float = 1.0) -> NumericsPolicy:
    """Return the policy with its bounds calibrated, and a version that names the evidence.

    Args:
        base: bounds that always pass; a calibrated one is never tighter.
        seen: what the perturbations did.
        slack: factor on the base's error bounds. Rows of one text are correlated, so a short exam
            of few texts scatters around the ratio that a long one finds; see docs/log.md.

    Raises:
        StropError: legal reorderings move this baseline so far that no bound would mean anything.
    """
    wide = replace(
        base,
        median_ratio=base.median_ratio * slack,
        tail_ratio=base.tail_ratio * slack,
        worst_ratio=base.worst_ratio * slack,
    )
    if not seen:
        return wide
    found = {
        "median_ratio": max(wide.median_ratio, _MARGIN * max(m.median for m in seen)),
        "tail_ratio": max(wide.tail_ratio, _MARGIN * max(m.tail for m in seen)),
        "worst_ratio": max(wide.worst_ratio, _MARGIN * max(m.worst for m in seen)),
        "kl_ratio": max(wide.kl_ratio, _MARGIN * max(m.kl for m in seen)),
    }
    for name, value in found.items():
        if value > _MOST * getattr(wide, name):
            raise StropError(
                f"the model's outputs are too unstable to judge: reordering its own sums needs {name} "
                f"{value:.3g}; a wider dtype for the baseline would help"
            )
    digest = hashlib.sha256(repr([astuple(m) for m in seen]).encode()).hexdigest()[:8]
    return replace(wide, version=f"{base.version}+{digest}", **found)
