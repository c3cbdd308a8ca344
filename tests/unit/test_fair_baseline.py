"""Whether the baseline was slowed down: noise accuses nobody, and acquits nobody."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from strop.core import Fault, Inconclusive, Reason
from strop.gate import fair_baseline


def turns(ratio: float, noise: float, count: int, seed: int = 0) -> list[Any]:
    rng = random.Random(seed)
    times = [1e6 * ratio * (1 + rng.uniform(-noise, noise)) for _ in range(count)]
    return [SimpleNamespace(beside_ns=int(time), clean_ns=10**6) for time in times]


def case(gain: float, first: list[Any], again: list[list[Any]]) -> Any:
    """A case whose repetitions come from `again`, one after the other."""
    decision = SimpleNamespace(overall=SimpleNamespace(ratio=gain))
    return SimpleNamespace(decision=decision, runs=first, time_again=lambda count: again.pop(0))


def test_a_baseline_as_fast_as_elsewhere_passes_at_once() -> None:
    again: list[list[Any]] = []
    assert "0.99" in fair_baseline.demand(case(1.5, turns(0.99, 0.001, 12), again))


def test_a_slowed_baseline_is_refused_after_a_second_look() -> None:
    again = [turns(1.3, 0.05, 12, seed) for seed in range(4)]
    with pytest.raises(Fault, match=r"was slowed down: .* 48 turns") as caught:
        fair_baseline.demand(case(1.5, turns(1.3, 0.05, 12), again))
    assert caught.value.reason is Reason.NOT_FASTER


def test_how_pages_happen_to_lie_accuses_nobody() -> None:
    again = [turns(1.0, 0.02, 12)]
    assert "12 turns" in fair_baseline.demand(case(1.2, turns(1.16, 0.02, 12), again))
    assert not again


def test_noise_does_not_acquit_a_slowed_baseline() -> None:
    """A fifth of the turns looking innocent is no proof of innocence."""
    again = [turns(1.4, 0.6, 12, seed) for seed in range(4)]
    with pytest.raises((Inconclusive, Fault), match="slowed down"):
        fair_baseline.demand(case(1.5, turns(1.4, 0.6, 12), again))


def test_a_gain_allows_no_more_than_fifteen_percent() -> None:
    again = [turns(1.2, 0.01, 12, seed) for seed in range(4)]
    with pytest.raises(Fault, match=r"at most 1\.150"):
        fair_baseline.demand(case(3.0, turns(1.2, 0.01, 12), again))
