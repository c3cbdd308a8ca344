"""The baseline is gated too: beside a candidate it must be as fast as where no candidate ever ran.

Baseline and candidate share a worker, so that both see the same memory; code that slows the
baseline down there would look like a gain. In the middle of the timed pairs, at moments that
nobody in that worker can tell from others, the judge has the same batch run in a clean worker.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from strop.core import Fault, Reason
from strop.engine.contract import Timed
from strop.gate.case import Case

__all__ = ["demand"]

_LEAST, _MOST = 0.03, 0.15
"""Slowdowns that two processes show on their own (where their pages lie), and the most allowed."""
_AGAIN = 12


def demand(case: Case) -> str:
    """Compare the baseline's times beside the candidate with those in the clean worker.

    A third of the gain may be owed to it, but at least 3 % and at most 15 %. A suspicion is raced
    again beside a fresh clean worker: how two processes' pages happen to lie must accuse nobody.

    Raises:
        Fault: not_faster.
    """
    assert case.decision is not None
    limit = 1 + min(_MOST, max(_LEAST, (case.decision.overall.ratio - 1) / 3))
    ratios = _ratios(case.runs)
    if statistics.median(ratios) > limit and case.time_again is not None:
        ratios = _ratios(case.time_again(_AGAIN))
    middle = statistics.median(ratios)
    text = f"beside the candidate it takes {middle:.3f} of its time elsewhere, at most {limit:.3f}"
    # Nor must a slow moment of the machine: nearly all turns have to show it.
    if middle > limit and ratios[len(ratios) // 5] > 1 + (limit - 1) / 2:
        raise Fault(Reason.NOT_FASTER, f"the baseline was slowed down: {text}")
    return f"{text}, {len(ratios)} turns"


def _ratios(runs: Sequence[Timed]) -> list[float]:
    return sorted(run.beside_ns / run.clean_ns for run in runs if run.clean_ns)
