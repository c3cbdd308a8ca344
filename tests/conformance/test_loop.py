"""The loop on the toy engine: every stage, no torch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from strop import loop
from strop.core import Candidate, Reason, Status, StropError
from strop.dash.terminal import Quiet
from strop.engine.start import start
from strop.journal import Journal
from strop.run import Run
from strop.ship.registry import Registry
from tests.support.candidates import TOY
from tests.support.loops import Listed, deployment, optimize


def latest(home: Path) -> Run:
    run = Run.latest(Journal.open(home), "toy")
    assert run is not None
    return run


def test_a_faster_candidate_is_found_confirmed_and_shipped(tmp_path: Path) -> None:
    outcome = optimize(tmp_path, deployment(tmp_path), ["nan", "fast", "zero_layer"])
    run = latest(tmp_path)
    verdicts = {t.proposal.params["name"]: t.verdict for t in run.trials()}
    assert verdicts["nan"].reason is Reason.NONFINITE
    assert verdicts["zero_layer"].reason is Reason.NUMERICS
    fast = verdicts["fast"]
    assert fast.status is Status.PASSED
    assert fast.slow is not None
    assert fast.slow.overall.low > 1.5
    assert {c.name for c in fast.checks} >= {"admission", "error", "greedy", "timed_outputs", "restore"}
    assert fast.jail
    assert outcome.winner == fast.candidate
    confirmed = run.confirmations()[fast.candidate]
    assert confirmed.status is Status.PASSED
    with Journal.open(tmp_path) as journal:
        registry = Registry(journal)
        live = registry.live("toy")
        assert live is not None
        assert live.confirmed == confirmed.slow
        assert registry.rollback("toy") is None
        assert journal.check() == []


def test_the_baseline_itself_is_no_winner(tmp_path: Path) -> None:
    outcome = optimize(tmp_path, deployment(tmp_path), ["same"])
    assert outcome.winner is None
    assert latest(tmp_path).trials()[0].verdict.status is not Status.PASSED


def test_a_finished_run_is_followed_by_a_new_one(tmp_path: Path) -> None:
    deployed = deployment(tmp_path)
    for count in (1, 2):
        optimize(tmp_path, deployed, ["nan"])
        assert len(Run.all(Journal.open(tmp_path), "toy")) == count


def test_a_run_that_was_cut_short_goes_on(tmp_path: Path) -> None:
    """What was judged stays judged; what was only proposed is judged now."""
    deployed = deployment(tmp_path)

    class Cut(Exception):
        pass

    original = Run.judged
    with pytest.MonkeyPatch.context() as patch:

        def stop_at_second(self: Run, trial: object) -> None:
            if self.trials():
                raise Cut
            original(self, trial)  # type: ignore[arg-type]

        patch.setattr(Run, "judged", stop_at_second)
        with pytest.raises(Cut):
            optimize(tmp_path, deployed, ["nan", "wrong_shape"])
    assert len(latest(tmp_path).trials()) == 1
    optimize(tmp_path, deployed, [])
    trials = latest(tmp_path).trials()
    assert [t.proposal.params["name"] for t in trials] == ["nan", "wrong_shape"]
    assert trials[1].verdict.reason is Reason.SHAPE
    assert len(Run.all(Journal.open(tmp_path), "toy")) == 1


def test_a_missing_trace_is_one_line_and_nothing_is_recorded(tmp_path: Path) -> None:
    deployed = deployment(tmp_path)
    Path(deployed.traffic.trace).unlink()
    with pytest.raises(StropError, match="no such"):
        optimize(tmp_path / "home", deployed, ["nan"])
    assert Run.latest(Journal.open(tmp_path / "home"), "toy") is None


def test_what_is_live_stays_when_a_new_winner_is_no_faster(tmp_path: Path) -> None:
    """The same speed under another name is no reason to change what serves."""
    known = {"fast": TOY["fast"], "twin": Candidate({**TOY["fast"].files, "note.md": "the same again"})}
    with Journal.open(tmp_path) as journal:
        deployed = deployment(tmp_path)
        first = loop.optimize(deployed, journal, [Listed(["fast"], known)], Quiet())
        assert first.winner == known["fast"].id, first.reason
        live = Registry(journal).live("toy")
        assert live is not None
        # A confirmed ratio that the twin cannot clearly beat, whatever the machine does meanwhile.
        high = replace(live.confirmed.overall, ratio=1e3, high=1e3)
        Registry(journal).publish(replace(live, confirmed=replace(live.confirmed, overall=high)))
        second = loop.optimize(deployed, journal, [Listed(["twin"], known)], Quiet())
        assert second.winner is None
        assert "stays" in second.reason
        assert journal.aliases("toy").names["live"] == first.winner


def test_each_search_is_measured_by_its_own_best(tmp_path: Path) -> None:
    """A second search is not shut out of the slow tier by the first one's best."""
    with Journal.open(tmp_path) as journal:
        searches = [Listed(["fast"]), Listed(["same"])]
        searches[1].name = "flags"
        loop.optimize(deployment(tmp_path), journal, searches, Quiet())
    (same,) = [t for t in latest(tmp_path).trials() if t.proposal.search == "flags"]
    assert "not measured on the slow tier" not in same.verdict.detail


def test_the_final_exam_reads_as_many_positions_as_the_policy_demands(tmp_path: Path) -> None:
    deployed = deployment(tmp_path)
    with start(deployed, lambda line: None) as engine:
        turn = loop.observe(deployed, engine, Quiet())
        turn.draw_final_questions()
        texts = [q.prompts[0] + q.forced[0] for q in turn.final_questions]
        assert all(q.prompts[0] and q.forced[0] for q in turn.final_questions)
        assert sum(map(len, texts)) >= deployed.policy.positions
        assert len(set(texts)) == len(texts)
        assert max(map(len, texts)) == turn.guards().max_context
