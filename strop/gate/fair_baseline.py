"""The baseline is gated too: beside a candidate it must be as fast as where no candidate ever ran.

Baseline and candidate share a worker, so that both see the same memory; code that slows the
baseline down there would look like a gain.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from strop.core import BASELINE_ID, Check, Fault, Reason, Tier
from strop.engine.contract import Batch, Engine, Role, Timing

__all__ = ["LIMIT", "demand"]

LIMIT = 1.10
"""Largest median of time beside the candidate over time in the clean worker."""


def demand(engine: Engine, batches: Sequence[Batch]) -> Check:
    """Time the baseline in both workers, in turns, on the slow tier.

    Args:
        engine: the engine, with the candidate still loaded.
        batches: at least one; the first is also run once untimed in either worker.

    Raises:
        Fault: not_faster.
    """
    engine.activate(BASELINE_ID, Tier.SLOW)
    for role in (Role.ACTIVE, Role.BASELINE):
        engine.measure(batches[0], role)
    ratios = []
    for number, batch in enumerate(batches):
        order = (Role.ACTIVE, Role.BASELINE) if number % 2 else (Role.BASELINE, Role.ACTIVE)
        took = {role: _ns(engine.measure(batch, role)) for role in order}
        ratios.append(took[Role.ACTIVE] / took[Role.BASELINE])
    middle = statistics.median(ratios)
    text = f"beside the candidate it takes {middle:.3f} of its time elsewhere, at most {LIMIT}"
    # One slow moment of the machine must not accuse anybody: nearly all turns have to show it.
    if middle > LIMIT and sorted(ratios)[1 if len(ratios) > 2 else 0] > 1 + (LIMIT - 1) / 2:
        raise Fault(Reason.NOT_FASTER, f"the baseline was slowed down: {text}")
    return Check("fair_baseline", True, text)


def _ns(timing: Timing) -> int:
    return timing.prefill_ns + timing.decode_ns
