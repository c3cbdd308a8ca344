"""Records cannot lie: what a noun may carry follows from its status."""

from __future__ import annotations

import math

import pytest

from strop.core import Candidate, Check, Interval, Pair, Phase, Reason, Status, Target, Verdict


def test_a_candidates_id_follows_from_paths_and_contents() -> None:
    one = Candidate(files={"a.py": "x", "b.py": "y"}, author="one")
    same = Candidate(files={"b.py": "y", "a.py": "x"}, author="two")
    moved = Candidate(files={"a.py": "y", "b.py": "x"})
    glued = Candidate(files={"a.py": "xb.pyy"})
    assert one.id == same.id
    assert len({one.id, moved.id, glued.id}) == 3


def test_a_failed_verdict_has_a_reason_and_no_other_has() -> None:
    with pytest.raises(ValueError, match="reason"):
        Verdict("c", Status.FAILED)
    with pytest.raises(ValueError, match="reason"):
        Verdict("c", Status.INCONCLUSIVE, Reason.TIMEOUT)


def test_a_passed_verdict_carries_its_slow_measurement() -> None:
    with pytest.raises(ValueError, match="slow-tier"):
        Verdict("c", Status.PASSED, checks=(Check("error", True, "fine"),))


def test_a_timed_step_takes_time() -> None:
    for baseline_ns, candidate_ns in ((0, 5), (5, 0), (5, -1)):
        with pytest.raises(ValueError, match="no time"):
            Pair(0, baseline_ns, candidate_ns, True)


def test_a_log_ratio_above_zero_is_faster() -> None:
    assert Pair(0, 200, 100, True).log_ratio == pytest.approx(math.log(2))


@pytest.mark.parametrize(("ratio", "low", "high"), [(1.0, 1.1, 1.2), (1.0, 0.0, 2.0), (1.0, 0.9, math.inf)])
def test_an_interval_holds_its_ratio(ratio: float, low: float, high: float) -> None:
    with pytest.raises(ValueError, match="interval"):
        Interval(ratio, low, high, 10)


def test_headroom_is_baseline_over_floor() -> None:
    assert Target(0, Phase.DECODE, 40.0, 8.0).headroom == 5.0
