"""The judge's statistics: anytime-valid evidence, intervals, rank correlation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["EProcess", "median_interval", "spearman"]

_BETS = (0.1, 0.25, 0.5, 0.95)
_CLIPS = (0.01, 0.03, 0.1, 0.3)

Floats = npt.NDArray[np.float64]


class EProcess:
    """Evidence against "the mean log ratio is at most delta", valid at any stopping time.

    A mixture of capital processes (Waudby-Smith & Ramdas 2024, "Estimating means of bounded random
    variables by betting"): each bets a fixed fraction on x - delta clipped to [-c, c]. Under the
    null every one is a nonnegative supermartingale, so their mean is one, and by Ville's
    inequality it exceeds 1/alpha with probability at most alpha, whenever one stops.

    What is tested is the clipped mean. Randomised order within a pair makes the noise of an
    identical candidate symmetric, and a symmetric law has the same clipped mean at every c.
    Small clips find small steady gains, large ones find large gains in few pairs.
    """

    def __init__(self, delta: float = 0.0) -> None:
        self.delta = delta
        grid = list(itertools.product(_BETS, _CLIPS))
        self._bets = np.array([bet for bet, _ in grid])
        self._clips = np.array([clip for _, clip in grid])
        self._log_wealth = np.zeros(len(grid))

    def update(self, *log_ratios: float) -> float:
        """Take in log ratios; return the e-value."""
        x = np.asarray(log_ratios, np.float64)[:, None] - self.delta
        gains = np.clip(x, -self._clips, self._clips) / self._clips
        self._log_wealth += np.log1p(self._bets * gains).sum(0)
        return self.e_value

    @property
    def e_value(self) -> float:
        """Evidence so far; capped where a float would overflow."""
        top = float(self._log_wealth.max())
        mean = top + math.log(float(np.exp(self._log_wealth - top).mean()))
        return math.exp(min(mean, 700.0))


def median_interval(
    log_ratios: Sequence[float], confidence: float = 0.95, seed: int = 0, draws: int = 2000
) -> tuple[float, float, float]:
    """Return (ratio, low, high): the median ratio and its interval by a circular block bootstrap.

    Blocks keep the correlation of neighbours (Kunsch 1989; Politis & Romano 1992), which a drifting
    machine causes. Fewer than 6 values carry no bootstrap: the interval is then their whole range.

    Args:
        log_ratios: natural logs in the order they were measured, at least 1.
        confidence: of the two-sided interval.
        seed: of the resampling.
        draws: number of resamples.
    """
    x = np.asarray(log_ratios, np.float64)
    middle = float(np.median(x))
    if len(x) < 6:
        low, high = float(x.min()), float(x.max())
    else:
        medians = np.median(_resampled(x, draws, np.random.default_rng(seed)), axis=1)
        tail = (1 - confidence) / 2
        low, high = (float(q) for q in np.quantile(medians, (tail, 1 - tail)))
    return math.exp(middle), math.exp(min(low, middle)), math.exp(max(high, middle))


def _resampled(x: Floats, draws: int, rng: np.random.Generator) -> Floats:
    """Return resamples, shape (draws, len(x))."""
    n = len(x)
    block = max(1, round(n ** (1 / 3)))
    starts = rng.integers(0, n, (draws, -(-n // block)))
    index = (starts[:, :, None] + np.arange(block)).reshape(draws, -1)[:, :n] % n
    resamples: Floats = x[index]
    return resamples


def spearman(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation; None below 3 points or when one side is constant."""
    if len(x) < 3 or len(set(x)) == 1 or len(set(y)) == 1:
        return None
    from scipy.stats import spearmanr

    return float(spearmanr(x, y).statistic)
