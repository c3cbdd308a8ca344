"""A module that is no language model, judged bit for bit through the whole loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from strop import loop
from strop.config import Deployment, Engine, Policy, Search
from strop.core import Reason, Status
from strop.dash.terminal import Quiet
from strop.journal import Journal
from strop.run import Run
from tests.support.candidates import candidate
from tests.support.loops import Listed

CANDIDATES = {
    "same": candidate("def build(m, ctx):\n    return {'head': m.head.forward}\n"),
    "another_rounding": candidate("""
        def build(m, ctx):
            return {"head": lambda x: (x.double() @ m.head.weight.double().T + m.head.bias).float()}
        """),
    "exact_only_in_exams": candidate("""
        def build(m, ctx):
            original, calls = m.forward, [0]
            def forward(x):
                calls[0] += 1
                out = original(x)
                if calls[0] > 30:
                    out["scores"] = out["scores"] * 1.5
                return out
            return {"": forward}
        """),
    "writes_input": candidate("""
        def build(m, ctx):
            original = m.forward
            def forward(x):
                out = original(x)
                x.zero_()
                return out
            return {"": forward}
        """),
    "fast": candidate("""
        def build(m, ctx):
            import time
            return {"": m.quick}
        """),
}


def verdicts(folder: Path, numerics: str, names: list[str]) -> dict[str, object]:
    deployed = Deployment(
        "spectrum",
        Engine("tests.support.models:slow_spectrum", threads=1),
        search=Search(budget_s=60.0),
        policy=Policy(numerics=numerics, pairs_fast=10, pairs_slow=12, pairs_final=14),
    )
    with Journal.open(folder) as journal:
        outcome = loop.optimize(deployed, journal, [Listed(names, CANDIDATES)], Quiet())
        run = Run.latest(journal, "spectrum")
        assert run is not None
        found: dict[str, object] = {str(t.proposal.params["name"]): t.verdict for t in run.trials()}
    return {**found, "winner": outcome.winner}


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return verdicts(tmp_path_factory.mktemp("exact"), "bit_exact", list(CANDIDATES))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("another_rounding", Reason.NUMERICS),
        ("writes_input", Reason.MUTATED_INPUT),
    ],
)
def test_a_module_that_is_not_exact_is_refused(exact: dict[str, object], name: str, reason: Reason) -> None:
    verdict = exact[name]
    assert (verdict.status, verdict.reason) == (Status.FAILED, reason)  # type: ignore[attr-defined]


def test_a_faster_exact_module_wins(exact: dict[str, object]) -> None:
    fast = exact["fast"]
    assert fast.status is Status.PASSED  # type: ignore[attr-defined]
    assert exact["winner"] == fast.candidate  # type: ignore[attr-defined]
    assert exact["same"].status is not Status.PASSED  # type: ignore[attr-defined]
