"""Memory that nobody has written yet holds garbage, not zeros and not the last outputs."""

from __future__ import annotations

from strop.core import Fault, Reason
from strop.engine.contract import Role
from strop.gate.case import Case

__all__ = ["demand"]


def demand(case: Case) -> str:
    """Ask the first question again with garbage in all new memory, and demand the same bits.

    Raises:
        Fault: numerics.
    """
    question, first = case.exam.questions[0], case.kept[0]
    again = case.engine.score(question, poison=True).outputs
    if [a.tobytes() for a in again] == [b.tobytes() for b in first]:
        return "garbage in new memory changes no bit"
    _, baseline = case.exam.answers(case.engine, 0)
    own = case.engine.score(question, Role.BASELINE, case.tier, poison=True).outputs
    if [a.tobytes() for a in own] != [b.tobytes() for b in baseline]:
        return "not judged: the baseline itself does not repeat under it"
    raise Fault(Reason.NUMERICS, "it reads memory that it never wrote: garbage there changes its outputs")
