"""Untrusted code runs only where every isolation layer holds."""

from __future__ import annotations

from strop.core import Fault, Reason
from strop.engine import jail
from strop.gate.case import Case

__all__ = ["demand"]


def demand(case: Case) -> str:
    """Demand every layer, unless the user or strop itself vouches for the code.

    Raises:
        Fault: not_admitted.
    """
    missing = jail.missing(case.jail)
    if not missing:
        return f"all {len(jail.LAYERS)} layers hold"
    if case.trusted:
        return f"trusted code; layers that do not hold: {', '.join(missing)}"
    raise Fault(
        Reason.NOT_ADMITTED,
        f"isolation is incomplete ({', '.join(missing)}): `strop doctor` says how to mend it, and "
        "--trust runs the code all the same",
    )
