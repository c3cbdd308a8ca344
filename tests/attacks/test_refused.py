"""Every way to misbehave is refused for the right reason, by the whole judge on a real model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strop import loop
from strop.config import Deployment, Engine, Policy, Search, Traffic
from strop.core import Candidate, Reason, Status, TokenSource
from strop.dash.terminal import Quiet
from strop.engine.client import ProcessEngine
from strop.engine.contract import Batch, Role
from strop.engine.start import start
from strop.judge import Judge
from tests.support.candidates import TORCH
from tests.support.loops import deployment as toy_deployment

ATTACKS = [
    ("zero_layer", Reason.NUMERICS),
    ("stale", Reason.NUMERICS),
    ("segfault", Reason.CRASHED),
    ("hang", Reason.TIMEOUT),
    ("writes_weights", Reason.MUTATED_INPUT),
    ("rebinds_weights", Reason.NUMERICS),
    ("late_write", Reason.LATE_WRITE),
    ("nan", Reason.NONFINITE),
    ("wrong_shape", Reason.SHAPE),
    ("exit", Reason.CRASHED),
    ("slows_baseline", Reason.NOT_FASTER),
    ("syntax", Reason.NOT_ADMITTED),
    ("no_mapping", Reason.LOAD_ERROR),
]


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    folder = tmp_path_factory.mktemp("attacks")
    trace = toy_deployment(folder).traffic.trace
    deployed = Deployment(
        "tiny",
        Engine("tests.support.models:tiny_llama", threads=1, step_timeout_s=3.0),
        Traffic(trace, tokens=TokenSource.SYNTHETIC, max_clusters=1),
        Search(),
        Policy(trust=True, pairs_fast=12, pairs_slow=12, decode_steps=4),
    )
    with start(deployed, lambda line: None) as engine:
        turn = loop.observe(deployed, engine, Quiet())
        loop.plan(turn, Quiet())
        yield Judge(turn, Quiet())
        assert engine.owner_starts == 1, "the weights were loaded once"


@pytest.fixture
def engine(judge: Judge) -> ProcessEngine:
    return judge.turn.engine


@pytest.mark.parametrize(("name", "reason"), ATTACKS)
def test_it_is_refused_and_the_engine_goes_on(
    judge: Judge, engine: ProcessEngine, name: str, reason: Reason
) -> None:
    verdict = judge(TORCH[name])
    assert (verdict.status, verdict.reason) == (Status.FAILED, reason), verdict.detail
    if name == "slows_baseline":
        assert "the baseline was slowed down" in verdict.detail
    assert engine.health()


def test_what_a_candidate_patched_is_gone_for_the_next(judge: Judge, engine: ProcessEngine) -> None:
    judge(TORCH["slows_baseline"])  # by 8 ms a step and more
    for role in (Role.ACTIVE, Role.BASELINE):
        engine.measure(engine_batch(0), role)
    took = {r: engine.measure(engine_batch(1), r).total_ns for r in (Role.ACTIVE, Role.BASELINE)}
    assert took[Role.ACTIVE] < took[Role.BASELINE] + 8e6


def engine_batch(number: int) -> Batch:
    return Batch(prompts=(tuple(range(number, number + 12)),), steps=4)


def test_twenty_identical_candidates_have_no_winner(judge: Judge) -> None:
    """The A/A control: the baseline's own forward under twenty names."""
    same = TORCH["same"].files
    for number in range(20):
        files = {**same, "manifest.toml": f'description = "{number}"\n'}
        verdict = judge(Candidate(files=files))
        assert verdict.status is not Status.PASSED, verdict
        assert verdict.reason in (None, Reason.NOT_FASTER), verdict.detail
