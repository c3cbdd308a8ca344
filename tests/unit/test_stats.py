"""The statistics accept what is true, and rarely what is not."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from strop.stats import EProcess, median_interval, spearman


def drifting(rng: np.random.Generator, pairs: int, gain: float, noise: float) -> list[float]:
    """Log ratios of interleaved pairs on a machine that drifts, with either side first at random."""
    clock = np.cumsum(rng.normal(0, 0.02, 2 * pairs)) + np.linspace(0, 0.3, 2 * pairs)
    clock += np.where(rng.random(2 * pairs) < 0.03, math.log(2), 0)
    first = rng.random(pairs) < 0.5
    steps = (clock[1::2] - clock[::2]) * np.where(first, 1, -1)
    return list(gain - steps + rng.normal(0, noise, pairs))


def accepted(logs: list[float], alpha: float = 0.05, delta: float = 0.0) -> int | None:
    """After how many pairs, looking after every one, the gain is accepted; None if never."""
    process = EProcess(delta)
    for count, x in enumerate(logs, 1):
        if process.update(x) >= 1 / alpha:
            return count
    return None


def test_identical_candidates_on_a_drifting_clock_are_hardly_ever_faster() -> None:
    """With delta, as the judge uses it: 1,000 searches that peek after every pair."""
    rng = np.random.default_rng(1)
    wrong = sum(accepted(drifting(rng, 60, 0.0, 0.02), delta=0.01) is not None for _ in range(1000))
    assert wrong <= 10


def test_even_without_a_margin_the_error_stays_below_alpha() -> None:
    rng = np.random.default_rng(2)
    wrong = sum(accepted(drifting(rng, 100, 0.0, 0.02)) is not None for _ in range(1000))
    assert wrong <= 50


def test_looking_often_with_a_t_test_fails_where_the_e_process_holds() -> None:
    """Why it is an e-process: the naive judge accepts identical candidates."""
    rng = np.random.default_rng(3)
    peeked = 0
    for _ in range(200):
        logs = np.array(drifting(rng, 60, 0.0, 0.02))
        for n in range(6, 60):
            part = logs[:n]
            peeked += part.mean() > 1.7 * part.std(ddof=1) / math.sqrt(n)
            if part.mean() > 1.7 * part.std(ddof=1) / math.sqrt(n):
                break
    assert peeked > 20


def test_a_true_gain_of_two_percent_is_found() -> None:
    rng = np.random.default_rng(4)
    found = [accepted(list(rng.normal(0.02, 0.015, 200))) for _ in range(100)]
    assert sum(n is not None for n in found) >= 95


def test_a_large_gain_needs_few_pairs() -> None:
    rng = np.random.default_rng(5)
    found = [accepted(list(rng.normal(math.log(1.3), 0.03, 20)), delta=0.01) for _ in range(50)]
    assert all(n is not None and n <= 10 for n in found)


def test_the_evidence_is_a_fair_bet_under_the_null() -> None:
    """The mean e-value over many coin flips at the clip is one."""
    rng = random.Random(6)
    values = []
    for _ in range(4000):
        process = EProcess()
        for _ in range(3):
            process.update(rng.choice((-0.01, 0.01)))
        values.append(process.e_value)
    assert np.mean(values) == pytest.approx(1.0, abs=0.05)


def test_many_log_ratios_at_once_are_the_same_evidence_as_one_by_one() -> None:
    logs = list(np.random.default_rng(9).normal(0.02, 0.03, 50))
    single, whole = EProcess(0.01), EProcess(0.01)
    for x in logs:
        single.update(x)
    assert whole.update(*logs) == pytest.approx(single.e_value, rel=1e-12)
    assert whole.update() == whole.e_value


def test_the_interval_covers_the_true_ratio() -> None:
    rng = np.random.default_rng(7)
    hits = 0
    for seed in range(200):
        _, low, high = median_interval(list(rng.normal(0.1, 0.05, 30)), seed=seed, draws=500)
        hits += low <= math.exp(0.1) <= high
    assert 180 <= hits <= 200


def test_few_values_give_their_whole_range() -> None:
    ratio, low, high = median_interval([0.0, 0.1, 0.4])
    assert (ratio, low, high) == pytest.approx((math.exp(0.1), 1.0, math.exp(0.4)))


def test_the_interval_is_reproducible() -> None:
    logs = list(np.random.default_rng(8).normal(0, 1, 20))
    assert median_interval(logs) == median_interval(logs)


def test_spearman_by_hand() -> None:
    assert spearman([1, 2, 3, 4], [10, 20, 40, 30]) == pytest.approx(0.8)
    assert spearman([1, 2], [1, 2]) is None
    assert spearman([1, 1, 1], [1, 2, 3]) is None
