"""What a terminal shows while the loop works, what a log gets, and what the commands print."""

from __future__ import annotations

import inspect
import io
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from strop import config
from strop.core import Candidate, Proposal, Reason, Status, Tier, Trial, Verdict, Version, Workload
from strop.dash import printing, tables
from strop.dash.terminal import Checks, Progress, Quiet, trial_line
from strop.listener import Listener
from strop.run import Run
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
        listen.judged(Trial(Proposal(number, "rewrites", verdict.candidate, {}), verdict, clock.now - 1000))
    assert shown(listen)[2].rstrip() == ("best so far 1.83x (1.78..1.88)   3 tried, 1 refused, 150 an hour")
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
    assert "70.0 s of 60.0 s, 0.00 s left" in view[1]
    assert view[2].rstrip() == "best so far 1.83x (1.78..1.88)   1 tried, 0 refused"
    listen.stage("confirm", "aaaa")
    assert "left" not in shown(listen)[1]


def test_a_resumed_search_counts_what_was_spent_before() -> None:
    clock, (console, _) = Clock(), log()
    listen = Progress(DEPLOYMENT, console, clock)
    listen.stage("search", "rewrites")
    clock.now += 10
    verdict = runs.passed(ID, 1.83, 1.75, 10.0)
    listen.judged(Trial(Proposal(20, "rewrites", ID, {}), verdict, 210.0))
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


@pytest.mark.parametrize("kind", [Quiet, Progress, Checks])
def test_listeners_have_the_verbs_of_the_loop(kind: type) -> None:
    for name, verb in inspect.getmembers(Listener, inspect.isfunction):
        if not name.startswith("_"):
            asked = list(inspect.signature(verb).parameters)
            assert list(inspect.signature(getattr(kind, name)).parameters) == asked


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Quiet() as listen:
        listen.stage("search", "rewrites")
        listen.line("x")
        listen.judged(runs.trial(runs.passed(ID, 1.83, 1.75)))
    assert capsys.readouterr() == ("", "")


def said(show: Callable[[Console], None]) -> str:
    """What a command prints into a pipe, trailing blanks off."""
    console, file = log()
    show(console)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


@pytest.fixture
def won(tmp_path: Path) -> Iterator[Run]:
    run = runs.won(tmp_path)
    yield run
    run.journal.close()


def publish(run: Run) -> Version:
    version = runs.version(run, runs.candidate("d").id, 1.83)
    run.journal.append("published", version, run="tiny", key=version.id)
    run.journal.move("tiny", {"live": version.id})
    return version


def test_cells_are_literal_and_a_pipe_has_no_width() -> None:
    long = "f" * 120
    printed = said(lambda c: printing.say(c, printing.table(("what",), [("[red]x\x1b[2J", long)[:1]])))
    assert "[red]x\N{REPLACEMENT CHARACTER}[2J" in printed
    assert long in said(lambda c: printing.say(c, printing.table((), [("id", long)])))


def test_the_outcome_of_a_won_run(won: Run) -> None:
    lines = said(lambda c: tables.outcome(won, Path("out.html"), c)).splitlines()
    told = [" ".join(line.split()) for line in lines]
    winner = runs.candidate("d").id[:12]
    for line in (
        "tiny: 1.83x (1.78..1.88), 95 % confidence, held out",
        "whole workload 1.83x 1.78..1.88 60 rounds of pairs",
        "cluster 1 1.67x 1.62..1.72 1,930 in, 41 out, 2 in flight, 30 % of requests",
        "prefill 1.61x 1.57..1.66 24 pairs",
        "rewrites 1.86x (1.81..1.92) 7 2 min 22 s of 5 min 00 s scope=whole linear=packed2",
        "flags 1.21x (1.18..1.25) 3 70.0 s of 5 min 00 s compile=default",
        "hardware Example CPU 9000, 2 cores, 2 threads, float32",
        "workload code: 8,819 requests in 3 clusters, version gmm-3-9f2e; 1,204 left out as too long",
        "tokens real (cut from text)",
        "isolation uid, network, no_new_privs",
        'strop.apply(model, "tiny") use it in Python',
        "strop rollback tiny take it back",
        f"strop show {winner} every check and what it measured",
        "out.html the report",
    ):
        assert line in told


def test_the_outcome_as_data(won: Run) -> None:
    found = json.loads(json.dumps(tables.outcome_json(won), allow_nan=False))
    assert found["winner"] == runs.candidate("d").id
    assert found["state"] == "won"
    assert found["confirmed"]["overall"]["ratio"] == 1.83
    assert found["confirmed"]["clusters"]["2"]["ratio"] == pytest.approx(1.83 * 1.1)
    assert found["searches"]["flags"]["ratio"]["ratio"] == 1.21
    assert found["searches"]["flags"]["params"] == {"compile": "default"}
    assert found["searches"]["rewrites"]["budget_s"] == 300.0
    assert found["refused"] == {"not_faster": 2, "numerics": 1, "timeout": 1}
    assert found["fingerprint"]["device"] == "Example CPU 9000"
    assert (found["left_out"], found["workload"]["tokens"]) == (1204, "real")


def test_the_outcome_of_a_run_that_has_only_begun(tmp_path: Path) -> None:
    run = runs.start(tmp_path)
    printed = said(lambda c: tables.outcome(run, None, c))
    assert "tiny: not finished; the same command goes on" in printed
    assert "not begun" in printed
    assert "strop.apply" not in printed
    assert "strop rollback" not in printed
    assert "strop report tiny" in printed
    assert tables.outcome_json(run)["confirmed"] is None


def test_a_missing_flag_search_is_named(tmp_path: Path) -> None:
    alone = config.Deployment("tiny", config.Engine("m"), search=config.Search(flag_search=False))
    printed = said(lambda c: tables.outcome(runs.start(tmp_path, deployment=alone), None, c))
    assert "search.flag_search is off" in printed


def test_status_of_what_is_live_and_of_nothing(won: Run) -> None:
    version = publish(won)
    (row,) = tables.deployed(won.journal)
    assert (row.name, row.live, row.trials, row.running) == ("tiny", version.id, 10, False)
    printed = said(lambda c: tables.status([row], c))
    assert f"tiny        {version.id[:12]}  1.83x (1.78..1.88)" in printed
    assert tables.status_json([row])["deployments"][0]["ratio"]["low"] == pytest.approx(1.83 * 0.975)
    won.journal.move("tiny", {"live": None})
    (row,) = tables.deployed(won.journal)
    assert "the model's own  -" in said(lambda c: tables.status([row], c))
    assert said(lambda c: tables.status([], c)).startswith("nothing yet; `strop init`")


def test_history_tells_every_event_but_proposals(won: Run) -> None:
    version = publish(won)
    events = [e for e in won.journal.events() if e.kind != "candidate_stored"]
    lines = said(lambda c: tables.history(events, c)).splitlines()
    assert len(lines) == 1 + len([e for e in events if e.kind != "proposed"])
    text = "\n".join(lines)
    assert "#9 flags  failed timeout  threads=1  4.5 s  no answer in 60 s" in text
    assert f"confirmed     {version.id[:12]}  passed  1.83x (1.78..1.88)" in text
    assert f"live: {version.id[:12]}  (epoch 1)" in text
    assert f"{version.id[:12]}: confirmed on held-out prompts and fresh pairs" in text
    assert "\x1b" not in text
    data = tables.history_json(events)["events"]
    assert len([e for e in data if e["kind"] == "proposed"]) == 10
    assert data[0]["body"]["left_out"] == 1204


def test_show_prints_checks_and_cleans_the_source() -> None:
    made = Candidate({"forward.py": "x = '\x1b]0;owned\x07'\n[b]", "manifest.toml": "t"}, "an agent")
    verdict = runs.passed(made.id, 1.83, 1.75)
    bad = runs.failed(made.id, Reason.HELD_OUT_REGRESSION, "0.98x")
    printed = said(lambda c: tables.show(made, verdict, bad, None, {"mlp": "fused"}, True, c))
    assert printed.startswith(made.id + "\nby an agent, from baseline  mlp=fused")
    assert "physics    passed  22.1 ms a step, floor 12.5 ms" in printed
    assert f"held out: {made.id[:12]}  failed held_out_regression  0.98x" in printed
    assert "x = '\N{REPLACEMENT CHARACTER}]0;owned\N{REPLACEMENT CHARACTER}'\n[b]" in printed
    assert "manifest.toml" not in said(lambda c: tables.show(made, verdict, console=c))
    data = tables.show_json(made, verdict, bad, None, {"mlp": "fused"})
    assert data["files"] == ["forward.py", "manifest.toml"]
    assert data["confirmed"]["reason"] == "held_out_regression"
    assert data["version"] is None
    assert tables.show_json(made, source=True)["files"]["manifest.toml"] == "t"


def test_show_says_where_a_version_may_run(won: Run) -> None:
    version = publish(won)
    made = won.journal.get_candidate(version.id)
    printed = said(lambda c: tables.show(made, None, None, version, console=c))
    assert "published for tiny: cpu, float32, batches up to 4, 2,488 tokens" in printed
    assert "search: not judged" in printed


def test_observed_prints_percentiles_and_clusters() -> None:
    spread = {"p10": 31.0, "p50": 512.0, "p90": 2400.0, "p99": 4000.5, "mean": 800.0, "max": 8192.0}
    summary = {"isl": spread, "osl": spread, "interarrival_s": None, "concurrency": spread}
    summary |= {"concurrency_note": "from the durations in the trace", "cached_share": 0.125}
    workload = Workload("code", "v1", 8819, runs.CLUSTERS)
    printed = said(lambda c: tables.observed(summary, workload, 7, c))
    told = [" ".join(line.split()) for line in printed.splitlines()]
    assert "code: 8,819 requests in 3 clusters, version v1; 7 left out as too long" in told
    assert "isl, tokens 31 512 2,400 4,000 800 8,192" in told
    assert "12.5 % of input tokens repeat a prefix" in told
    assert not [line for line in told if line.startswith("interarrival")]
    assert "2 58 in, 402 out, 1 in flight, 8 % of requests 20 to 110 300 to 620" in told
    data = tables.observed_json({**summary, "cached_share": math.nan}, workload, 7)
    assert data["summary"]["cached_share"] is None
    assert data["workload"]["clusters"][0]["isl_range"] == [310, 840]


def test_doctor_names_what_to_mend_only_where_it_is_broken() -> None:
    good = tables.Finding("torch", True, "2.13.0", "install it")
    bad = tables.Finding("network", False, "no user namespaces", "allow them")
    printed = said(lambda c: tables.doctor([good, bad], c))
    assert "ok  torch    2.13.0" in printed
    assert "no  network  no user namespaces; allow them" in printed
    assert "install it" not in printed
    assert tables.doctor_json([good, bad])["ok"] is False
    assert tables.doctor_json([good])["ok"] is True
