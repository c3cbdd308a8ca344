"""Whether the outputs are as good as the baseline's: each test of the numerics policy as a check."""

from __future__ import annotations

from strop.core import Check, Fault, Reason
from strop.gate import admission, numerics
from strop.gate.case import Case

__all__ = ["bit_exact", "divergence", "error", "greedy", "perplexity"]


def bit_exact(case: Case) -> str | None:
    """Demand the baseline's very bits, or its own noise where it does not repeat itself.

    Raises:
        Fault: numerics.
    """
    if not case.exam.bit_exact:
        return None
    found = case.current
    check = numerics.bit_exact(found.baseline, found.reference, found.scored.outputs)
    return _passed(check, Reason.NUMERICS)


def error(case: Case) -> str | None:
    """Demand errors against the reference like the baseline's: median, tail and worst row.

    Raises:
        Fault: numerics.
    """
    if case.exam.bit_exact or changes_precision(case):
        return None
    return _passed(numerics.errors(case.evidence, case.exam.thresholds), Reason.NUMERICS)


def divergence(case: Case) -> str | None:
    """Demand a mean KL to the reference like the baseline's.

    Raises:
        Fault: numerics.
    """
    if case.exam.bit_exact or changes_precision(case):
        return None
    return _passed(numerics.divergence(case.evidence, case.exam.thresholds), Reason.NUMERICS)


def greedy(case: Case) -> str | None:
    """Demand the greedy tokens: all that the reference is sure of, or a share at another precision.

    Raises:
        Fault: numerics, or quality at another precision.
    """
    if case.exam.bit_exact:
        return None
    if changes_precision(case):
        return _passed(numerics.agreement(case.evidence, case.exam.thresholds), Reason.QUALITY)
    return _passed(numerics.greedy(case.evidence), Reason.NUMERICS)


def perplexity(case: Case) -> str | None:
    """Demand the baseline's perplexity on the text of the exam.

    Raises:
        Fault: numerics, or quality at another precision.
    """
    if case.exam.bit_exact:
        return None
    if changes_precision(case):
        limit = case.exam.thresholds.quality_perplexity
        return _passed(numerics.perplexity(case.evidence, limit), Reason.QUALITY)
    return _passed(numerics.perplexity(case.evidence, case.exam.thresholds.perplexity), Reason.NUMERICS)


def changes_precision(case: Case) -> bool:
    """Whether the candidate declares another precision than the baseline's."""
    return admission.precision(case.candidate) != "same"


def _passed(check: Check, reason: Reason) -> str:
    if not check.passed:
        raise Fault(reason, f"{check.name}: {check.measured}")
    return check.measured
