"""What a terminal shows while the loop works, what a log gets, and what the commands print."""

from __future__ import annotations

import inspect
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from strop import config, loop
from strop.core import Interval, Proposal, Reason, Status, Tier, Verdict
from strop.dash import tables
from strop.dash.terminal import Progress, Quiet, trial_line
from tests.support import runs

DEPLOYMENT = config.Deployment(
    "tiny", config.Engine("smollm2"), search=config.Search(budget_s=300.0, flag_budget_s=60.0)
)
ID = "a" * 64


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def log() -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, width=80, highlight=False), file


def test_a_passed_trial_is_one_line() -> None:
    trial = runs.trial(runs.passed(ID, 1.83, 1.75), attention="grouped", mlp="fused", threads=0)
    assert trial_line(trial) == (
        "#7 rewrites  passed  1.83x (1.78..1.88)  fast 1.75x  attention=grouped mlp=fused  12.3 s"
    )


def test_a_refused_trial_says_why_on_one_line() -> None:
    verdict = runs.failed(ID, Reason.NUMERICS, "layer 3:\n  \x1b[31mkl 0.2\x1b[0m", fast=1.2)
    assert trial_line(runs.trial(verdict, 8, mlp="fused")) == (
        "#8 rewrites  failed numerics  fast 1.20x  mlp=fused  4.5 s  "
        "layer 3: \N{REPLACEMENT CHARACTER}[31mkl 0.2\N{REPLACEMENT CHARACTER}[0m"
    )


def test_an_inconclusive_trial_says_so() -> None:
    verdict = Verdict(ID, Status.INCONCLUSIVE, detail="too much noise", seconds=0.5)
    assert trial_line(runs.trial(verdict)) == (
        "#7 rewrites  inconclusive  nothing set  0.50 s  too much noise"
    )


def test_a_log_gets_one_line_a_message_and_a_verdict() -> None:
    console, file = log()
    trial = runs.trial(runs.passed(ID, 1.83, 1.75), linear="packed2 " * 20)
    with Progress(DEPLOYMENT, console) as listen:
        listen.stage("start", "torch engine, [bold]smollm2[/bold]")
        listen.line("loading\x07 weights")
        listen.stage("search", "rewrites")
        listen.proposed(trial.proposal)
        for count in range(1, 25):
            listen.tier(Tier.SLOW, count, 24)
        listen.judged(trial)
    lines = file.getvalue().splitlines()
    assert lines == [
        "start    torch engine, [bold]smollm2[/bold]",
        "loading\N{REPLACEMENT CHARACTER} weights",
        "search   rewrites",
        trial_line(trial),
    ]
    assert len(lines[-1]) > 80, "a log line is not wrapped at the console's width"


def shown(listen: Progress) -> list[str]:
    """The live view as text."""
    file = io.StringIO()
    Console(file=file, width=100, highlight=False).print(listen._view())
    return file.getvalue().splitlines()


def test_the_live_view_counts_down_and_keeps_the_best() -> None:
    clock, (console, _) = Clock(), log()
    listen = Progress(DEPLOYMENT, console, clock)
    listen.stage("search", "rewrites")
    assert "0.00 s of 5 min 00 s, 5 min 00 s left" in shown(listen)[1]
    assert shown(listen)[2].rstrip() == "best so far none yet   0 tried, 0 refused"
    for number, verdict in enumerate(
        [
            runs.passed(ID, 1.83, 1.75, 30.0),
            runs.passed("b" * 64, 1.5, 1.4, 30.0),
            runs.failed("c" * 64, Reason.CRASHED, "signal 11", seconds=12.0),
        ]
    ):
        clock.now += verdict.seconds
        listen.judged(
            loop.Trial(Proposal(number, "rewrites", verdict.candidate, {}), verdict, clock.now - 1000)
        )
    assert shown(listen)[2].rstrip() == (
        "best so far 1.83x (1.78..1.88)   3 tried, 1 refused, 150 an hour"
    )
    clock.now += 8
    listen.proposed(Proposal(3, "rewrites", "d" * 64, {"mlp": "fused"}))
    listen.tier(Tier.FAST, 6, 12)
    view = shown(listen)
    assert "80.0 s of 5 min 00 s, 3 min 40 s left" in view[1]
    assert view[3].rstrip() == "#3 mlp=fused"
    assert view[4].startswith("fast tier")
    assert view[4].rstrip().endswith("6/12 rounds")


def test_another_search_has_its_own_budget_and_the_best_stays() -> None:
    clock, (console, _) = Clock(), log()
    listen = Progress(DEPLOYMENT, console, clock)
    listen.stage("search", "rewrites")
    clock.now += 30
    listen.judged(runs.trial(runs.passed(ID, 1.83, 1.75, 30.0)))
    listen.stage("search", "flags")
    clock.now += 70
    view = shown(listen)
    assert "70.0 s of 1 min 00 s, 0.00 s left" in view[1] or "70.0 s of 60.0 s, 0.00 s left" in view[1]
    assert view[2].rstrip() == "best so far 1.83x (1.78..1.88)   1 tried, 0 refused"
    listen.stage("confirm", "aaaa")
    assert "left" not in shown(listen)[1]


def test_a_resumed_search_counts_what_was_spent_before() -> None:
    clock, (console, _) = Clock(), log()
    listen = Progress(DEPLOYMENT, console, clock)
    listen.stage("search", "rewrites")
    clock.now += 10
    verdict = runs.passed(ID, 1.83, 1.75, 10.0)
    listen.judged(loop.Trial(Proposal(20, "rewrites", ID, {}), verdict, 210.0))
    clock.now += 5
    assert "3 min 35 s of 5 min 00 s, 85.0 s left" in shown(listen)[1]


def test_a_terminal_is_left_as_it_was() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100, highlight=False)
    trial = runs.trial(runs.passed(ID, 1.83, 1.75))
    with pytest.raises(KeyboardInterrupt), Progress(DEPLOYMENT, console) as listen:  # noqa: PT012
        listen.stage("search", "rewrites")
        listen.judged(trial)
        raise KeyboardInterrupt
    written = file.getvalue()
    assert "1.83x (1.78..1.88)" in written
    assert written.count("\x1b[?25l") == written.count("\x1b[?25h") == 1, "the cursor came back"


@pytest.mark.parametrize("kind", [Quiet, Progress])
def test_listeners_have_the_verbs_of_the_loop(kind: type) -> None:
    for name, verb in inspect.getmembers(loop.Listener, inspect.isfunction):
        if not name.startswith("_"):
            asked = list(inspect.signature(verb).parameters)
            assert list(inspect.signature(getattr(kind, name)).parameters) == asked


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Quiet() as listen:
        listen.stage("search", "rewrites")
        listen.line("x")
        listen.judged(runs.trial(runs.passed(ID, 1.83, 1.75)))
    assert capsys.readouterr() == ("", "")


def test_a_table_takes_cells_literally(capsys: pytest.CaptureFixture[str]) -> None:
    long = "f" * 120
    tables.rows([{"what": "[red]x[/red]\x1b[2J", "id": long, "none": None}], "found")
    printed = capsys.readouterr().out
    assert "[red]x[/red]\N{REPLACEMENT CHARACTER}[2J" in printed
    assert long in printed, "a pipe has no width"
    assert "\x1b" not in printed


def test_an_empty_table_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    tables.rows([], "deployments")
    assert capsys.readouterr().out == "deployments: none yet\n"


def test_the_outcome_of_a_won_run(tmp_path: Path) -> None:
    found = tables.outcome(runs.won(tmp_path))
    assert json.loads(json.dumps(found)) == found
    assert found["winner"] == runs.candidate("d").id
    assert found["confirmed"] == tables.interval_text(runs.measurement(1.83).overall)
    assert found["clusters"] == {
        "cluster 0: 512 in, 128 out, 4 in flight, 62 % of requests": "1.940x (1.891 to 1.998)",
        "cluster 1: 1,930 in, 41 out, 2 in flight, 30 % of requests": "1.665x (1.624 to 1.715)",
        "cluster 2: 58 in, 402 out, 1 in flight, 8 % of requests": "2.013x (1.963 to 2.073)",
    }
    assert found["flag_search_best"] == "1.210x (1.180 to 1.246) compile=default"
    assert found["flag_search_spent"] == "70.0 s of 5 min 00 s, 3 judged"
    assert (found["trials"], found["refused"], found["left_out"]) == (10, 4, 1204)
    assert found["isolation"] == "uid, network, no_new_privs"


def test_the_outcome_of_a_run_that_has_only_begun(tmp_path: Path) -> None:
    found = tables.outcome(runs.start(tmp_path))
    assert (found["winner"], found["confirmed"], found["clusters"]) == (None, None, {})
    assert found["reason"] == "still running"
    assert found["flag_search_best"] == "not begun"


def test_clusters_alike_stay_apart(tmp_path: Path) -> None:
    run = runs.won(tmp_path)
    rows = tables.workload_rows(run.started.workload)
    assert [row["cluster"] for row in rows] == [0, 1, 2]
    assert rows[1]["isl_p10_p90"] == "1200 to 2400"


def test_checks_and_intervals_as_cells() -> None:
    verdict = runs.passed(ID, 1.83, 1.75)
    assert tables.checks(verdict)[2] == {
        "check": "physics",
        "passed": "yes",
        "measured": "22.1 ms a step, floor 12.5 ms",
    }
    assert tables.interval_text(None) == ""
    assert tables.interval_text(Interval(1.5, 1.25, 2.0, 9)) == "1.500x (1.250 to 2.000)"
