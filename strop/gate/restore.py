"""A to B to A gives A's bits: what a candidate leaves behind must not change the baseline."""

from __future__ import annotations

from strop.gate.case import Case

__all__ = ["demand"]


def demand(case: Case) -> str:
    """Drop the candidate and demand the bits that the baseline gave before it came.

    Raises:
        Fault: mutated_input.
    """
    case.engine.restore()
    return "the baseline's outputs have the bits they had before"
