"""The baseline is gated too: beside a candidate it must be as fast as where no candidate ever ran.

Baseline and candidate share a worker, so that both see the same memory; code that slows the
baseline down there would look like a gain. In the middle of the timed pairs, at moments that
nobody in that worker can tell from others, the judge has the same batch run in a clean worker.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from strop.core import Fault, Inconclusive, Reason
from strop.engine.contract import Timed
from strop.gate.case import Case

__all__ = ["demand"]

_LEAST, _MOST = 0.03, 0.15
"""Slowdowns that two processes show on their own (where their pages lie), and the most allowed."""
_AGAIN, _LOOKS = 12, 4
"""Rounds that a suspicion is raced again, and how often at most."""


def demand(case: Case) -> str:
    """Compare the baseline's times beside the candidate with those in the clean worker.

    A third of the gain may be owed to it, but at least 3 % and at most 15 %. A suspicion is raced
    again, each time beside a fresh clean worker: how two processes' pages happen to lie, or a slow
    moment of the machine, must accuse nobody. Nor may noise acquit: what stays suspect is not accepted.

    Raises:
        Fault: not_faster, where nearly all turns show it.
        Inconclusive: the machine was too noisy to tell.
    """
    assert case.decision is not None
    limit = 1 + min(_MOST, max(_LEAST, (case.decision.overall.ratio - 1) / 3))
    ratios = _ratios(case.runs)
    fresh: list[Timed] = []
    for _ in range(_LOOKS if case.time_again else 0):
        if statistics.median(ratios) <= limit:
            break
        assert case.time_again is not None
        fresh += case.time_again(_AGAIN)
        ratios = _ratios(fresh)
    middle = statistics.median(ratios)
    text = f"beside the candidate it takes {middle:.3f} of its time elsewhere, at most {limit:.3f}"
    text = f"{text}, {len(ratios)} turns"
    if middle <= limit:
        return text
    if ratios[len(ratios) // 5] > 1 + (limit - 1) / 2:
        raise Fault(Reason.NOT_FASTER, f"the baseline was slowed down: {text}")
    raise Inconclusive(f"the baseline may have been slowed down: {text}")


def _ratios(runs: Sequence[Timed]) -> list[float]:
    return sorted(run.beside_ns / run.clean_ns for run in runs if run.clean_ns)
