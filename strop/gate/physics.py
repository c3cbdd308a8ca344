"""A step faster than its roofline floor is impossible: something was not computed."""

from __future__ import annotations

import math

from strop.core import Fault, Phase, Reason
from strop.gate import admission
from strop.gate.case import Case

__all__ = ["MARGIN", "demand"]

MARGIN = 0.5
"""Share of the floor that a step may not undercut. On the CPU the floor comes from a bandwidth
that the judge measures itself, and on shared machines that varies by a factor of two."""
_AGAIN = 5
"""So often is the machine measured again before a step is called impossible: what a neighbour took
when the floor was measured may be there when the step is run."""


def demand(case: Case) -> str:
    """Compare the fastest timed decode step, or call of a module, with its floor.

    A candidate that declares a narrower precision has fewer bytes to read, and a lower floor.

    Raises:
        Fault: faster_than_physics.
    """
    fastest = min((_step_ms(run.phases, run.batch.steps) for run in case.runs), default=math.inf)
    width = admission.width(case.candidate, case.engine.describe().fingerprint.dtype)
    for _ in range(_AGAIN if case.floor_again else 0):
        if fastest >= MARGIN * width * case.floor_ms:
            break
        assert case.floor_again is not None
        case.floor_ms = min(case.floor_ms, case.floor_again())
    floor = width * case.floor_ms
    text = f"fastest step {fastest:.3g} ms, floor {floor:.3g} ms"
    if fastest < MARGIN * floor:
        raise Fault(Reason.FASTER_THAN_PHYSICS, text)
    return text


def _step_ms(phases: dict[Phase, tuple[int, int]], steps: int) -> float:
    """Return the candidate's time for one decode step or call, in ms; infinity when there was none."""
    if Phase.CALL in phases:
        return phases[Phase.CALL][1] / 1e6
    return phases[Phase.DECODE][1] / steps / 1e6 if steps else math.inf
