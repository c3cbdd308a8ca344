"""Whether a step was possible: a neighbour at the measurement accuses nobody; the impossible stays so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from strop.core import Candidate, Fault, Phase, Reason
from strop.gate import physics


def case(step_ms: float, floor_ms: float, again: list[float]) -> Any:
    """A case whose floor is measured again as `again` says, one after the other; at last it stays."""
    batch = SimpleNamespace(steps=10)
    engine = SimpleNamespace(describe=lambda: SimpleNamespace(fingerprint=SimpleNamespace(dtype="float32")))
    return SimpleNamespace(
        runs=[SimpleNamespace(phases={Phase.DECODE: (10**9, int(step_ms * 1e7))}, batch=batch)],
        candidate=Candidate({"manifest.toml": ""}, author="test"),
        engine=engine,
        floor_ms=floor_ms,
        floor_again=lambda: again.pop(0) if again else floor_ms,
    )


def test_a_possible_step_passes_and_nothing_is_measured_again() -> None:
    again = [0.1]
    assert physics.demand(case(2.0, 3.0, again)) == "fastest step 2 ms, floor 3 ms"
    assert again == [0.1]


def test_a_floor_that_a_neighbour_raised_is_measured_again() -> None:
    """Seen in twenty rounds: 1.59 ms against a floor of 3.25 ms, taken while another job read memory."""
    assert "floor 2 ms" in physics.demand(case(1.59, 3.25, [3.3, 2.0]))


def test_the_best_that_the_machine_ever_did_counts() -> None:
    assert "floor 2 ms" in physics.demand(case(1.0, 2.5, [2.4, 2.0, 3.0]))


def test_an_impossible_step_is_refused_in_the_end() -> None:
    with pytest.raises(Fault, match=r"fastest step 0\.3 ms, floor 2 ms") as caught:
        physics.demand(case(0.3, 3.0, [2.9, 2.0, 2.5]))
    assert caught.value.reason is Reason.FASTER_THAN_PHYSICS


def test_without_a_second_measurement_the_floor_stands() -> None:
    suspect = case(1.0, 3.0, [])
    suspect.floor_again = None
    with pytest.raises(Fault):
        physics.demand(suspect)
