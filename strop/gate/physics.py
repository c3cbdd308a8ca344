"""A step faster than its roofline floor is impossible: something was not computed."""

from __future__ import annotations

from strop.core import Check, Fault, Reason

__all__ = ["MARGIN", "possible"]

MARGIN = 0.5
"""Share of the floor that a step may not undercut. On the CPU the floor comes from a bandwidth
that the judge measures itself, and on shared machines that varies by a factor of two."""


def possible(step_ms: float, floor_ms: float) -> Check:
    """Compare the fastest timed step with the floor, both in ms.

    Raises:
        Fault: faster_than_physics.
    """
    text = f"fastest step {step_ms:.2f} ms, floor {floor_ms:.2f} ms"
    if step_ms < MARGIN * floor_ms:
        raise Fault(Reason.FASTER_THAN_PHYSICS, text)
    return Check("physics", True, text)
