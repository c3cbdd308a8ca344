"""From pairs to a decision."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from strop.config import Policy
from strop.core import Cluster, Fault, Inconclusive, Pair, Reason, Workload
from strop.gate import speed
from strop.measure.pairing import rounds

WORKLOAD = Workload("w", "v", 10, (Cluster(0, 100, 10, 0.9), Cluster(1, 200, 10, 0.1)))
POLICY = Policy()


def pairs(ratios: Sequence[tuple[float, float]], noise: float = 0.01) -> list[Pair]:
    """Pairs in rounds, with the given (cluster 0, cluster 1) ratios."""
    rng = random.Random(0)
    return [
        Pair(id, round(1e9 * ratio * math.exp(rng.gauss(0, noise))), 10**9, rng.random() < 0.5)
        for round_ratios in ratios
        for id, ratio in enumerate(round_ratios)
    ]


def test_a_clear_gain_is_accepted_early() -> None:
    found = pairs([(1.3, 1.3)] * 10)
    decision = speed.decide(found, WORKLOAD, POLICY)
    speed.conclude(decision, POLICY)
    assert decision.overall.ratio == pytest.approx(1.3, rel=0.02)
    assert not speed.keep_going(found, WORKLOAD, POLICY)


def test_identical_candidates_are_not_faster() -> None:
    found = pairs([(1.0, 1.0)] * 60)
    with pytest.raises(Fault) as caught:
        speed.conclude(speed.decide(found, WORKLOAD, POLICY), POLICY)
    assert caught.value.reason is Reason.NOT_FASTER


def test_a_slow_candidate_is_given_up_early() -> None:
    assert not speed.keep_going(pairs([(0.7, 0.7)] * 10), WORKLOAD, POLICY)


def test_a_gain_that_costs_one_cluster_is_refused() -> None:
    with pytest.raises(Fault, match="cluster 1 is slower"):
        speed.conclude(speed.decide(pairs([(1.5, 0.8)] * 20), WORKLOAD, POLICY), POLICY)


def test_noise_is_inconclusive_never_faster() -> None:
    found = pairs([(1.08, 1.08), (0.97, 0.97), (1.2, 1.2), (0.93, 0.93)] * 2, noise=0.05)
    with pytest.raises(Inconclusive, match="not proven"):
        speed.conclude(speed.decide(found, WORKLOAD, POLICY), POLICY)


def test_the_traffic_weighs_the_clusters() -> None:
    decision = speed.decide(pairs([(1.0, 2.0)] * 10, noise=0), WORKLOAD, POLICY)
    assert decision.overall.ratio == pytest.approx(0.9 * 1 + 0.1 * 2)


def test_an_incomplete_round_is_no_evidence() -> None:
    whole = pairs([(1.3, 1.3)] * 6)
    cut = [*whole, Pair(0, 10**9, 10**9, True)]
    before, after = (speed.decide(p, WORKLOAD, POLICY) for p in (whole, cut))
    assert before.e_value == after.e_value
    assert after.clusters[0].pairs == 7


def test_every_cluster_has_either_side_first_equally_often() -> None:
    slots = [slot for part in rounds(WORKLOAD, 20, random.Random(1)) for slot in part]
    for id in (0, 1):
        firsts = [slot.baseline_first for slot in slots if slot.cluster == id]
        assert sum(firsts) == 10
        assert firsts != [True, False] * 10
    assert len({slot.seed for slot in slots}) == len(slots)


def test_the_order_follows_from_the_secret() -> None:
    one, same, other = (list(rounds(WORKLOAD, 6, random.Random(s))) for s in (1, 1, 2))
    assert one == same != other
