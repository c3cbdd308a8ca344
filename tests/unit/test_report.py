"""The report: right numbers, nothing left out, in every state of a run, and safe to open."""

# ruff: noqa: RUF001 - the page writes ratios with a multiplication sign.
from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from strop import config
from strop.core import (
    Cluster,
    Interval,
    Phase,
    Reason,
    Status,
    StropError,
    Target,
    TokenSource,
    Verdict,
    Workload,
)
from strop.dash import charts, report, words
from strop.dash.charts import Axis, Dot, Series
from strop.dash.digest import Digest, State
from strop.run import Outcome, Run
from tests.support import runs

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """Text and tags of a page; refuses tags that do not close in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["style"], ["title"]):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def won(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    run = runs.won(tmp_path_factory.mktemp("won"))
    yield run
    run.journal.close()


@pytest.fixture(scope="module")
def html(won: Run, tmp_path_factory: pytest.TempPathFactory) -> str:
    winner = runs.candidate("d").id
    won.journal.move("tiny", {"live": winner})
    won.journal.move("tiny", {"live": None})
    moves = won.journal.events(run="tiny", kind="alias_moved")
    path = tmp_path_factory.mktemp("out") / "report.html"
    proof = runs.version(won, winner, 1.83)
    return report.write(won, path, versions=[proof], epoch_history=moves).read_text("utf-8")


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


@pytest.mark.parametrize(
    "said",
    [
        "1.83× as fast as the model's own forward pass",
        "1.78 to 1.88 with 95 % confidence, over 60 rounds of pairs",
        "Example CPU 9000, 2 cores, 2 threads, float32",
        "code: 8,819 requests in 3 clusters, version gmm-3-9f2e",
        "real (cut from text)",
        "1,204 requests with more than 2,048 tokens in",
        "uid, network, no_new_privs",
        "e-value 4.2e+05; 20 is significant",
        "cluster 1 1,930 in, 41 out, 2 in flight, 30 % of requests 1.67× 1.62 to 1.72",
        "prefill 24 pairs 1.61× 1.57 to 1.66",
        "decode 24 pairs 1.96× 1.91 to 2.02",
        "best of flags compile=default 1.21× 1.18 to 1.25",
        "rewrites 7 4 2 min 22 s 5 min 00 s",
        "flags 3 1 70.0 s 5 min 00 s",
        "Spearman's ρ = 1.00 over n = 5 candidates",
        "cluster 1, prefill 1,930 in, 41 out, 2 in flight, 30 % of requests 2210.00 ms 12.50 ms",
        "3.30×",
        "physics in the search 22.1 ms a step, floor 12.5 ms ✓ passed",
        "kl held-out text mean KL 1.1e-9 against 1.0e-9, 20,000 positions ✓ passed",
        "All 10 candidates 2 not faster 1 numerics 1 timeout",
        "✕ failed timeout 4.5 s",
        "~ inconclusive",
        "1.60x on the fast tier, the best is 1.75x",
        "one prefill and 16 chained decode steps",
        "torch 2.13.0",
        "MKL_CBWR AVX2",
        "cpu, float32, batches up to 4, 2,488 tokens",
    ],
)
def test_a_finished_run_says(page: Page, said: str) -> None:
    assert said in page.text


def test_every_candidate_is_listed_once_in_order(won: Run, html: str) -> None:
    numbers = re.findall(r'<td class="n" data-th="#">(\d+)</td>', html)
    assert numbers == [str(i) for i in range(10)]
    for trial in won.trials():
        assert words.short_id(trial.proposal.candidate) in html
    assert html.count('<tr class="winner">') == 1


def test_names_that_moved_are_told(page: Page) -> None:
    told = page.text[page.text.index("What was live, and when") :]
    first, second = told.index(runs.candidate("d").id[:12]), told.index("the model's own the model's own")
    assert first < second


def test_what_a_candidate_wrote_is_text(html: str, page: Page) -> None:
    assert "<script" not in html
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp;" in html
    assert "head=<b>int8</b>" in page.text
    assert "\x1b" not in html
    # `b` is the headline only: the candidate's own tag did not become one.
    assert [tag for tag, _ in page.tags].count("b") == 1


def test_the_page_needs_nothing_else(html: str, page: Page) -> None:
    asked = {"src", "href", "srcset", "xlink:href", "action", "data"}
    assert not [(tag, a) for tag, a in page.tags if asked & a.keys()]
    assert not [(tag, a) for tag, a in page.tags if any(name.startswith("on") for name in a)]
    assert "url(" not in html
    assert "@import" not in html
    policy = [a["content"] for tag, a in page.tags if a.get("http-equiv")]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_drawn_places_are_finite(html: str) -> None:
    assert not re.search(r"\b(nan|inf)%", html)
    places = [float(x) for x in re.findall(r'[xy][12]?="(-?[\d.]+)%"', html)]
    assert len(places) > 100
    assert all(0 <= place <= 100 for place in places)


def test_nothing_judged_yet(tmp_path: Path) -> None:
    text = Page(report.render(Digest.of(runs.start(tmp_path)))).text
    assert "Still running" in text
    assert "Nothing has passed yet; 0 candidates judged." in text
    assert "still running, or stopped before its end; the same command goes on" in text
    assert "The flag search has judged nothing yet." in text
    assert "not computed, as n = 0 candidates were measured on both tiers; it takes 3" in text
    assert "On held-out prompts" not in text


def test_an_unfinished_run_shows_its_best_as_unconfirmed(tmp_path: Path) -> None:
    run = runs.start(tmp_path)
    runs.judge(run, "rewrites", {"mlp": "fused"}, runs.passed("a" * 64, 1.4, 1.3))
    text = Page(report.render(Digest.of(run))).text
    assert "Still running Best so far: 1.40× (1.36 to 1.44), not confirmed yet." in text
    assert "as fast as" not in text.split("How it was measured")[0]


def test_only_failures(tmp_path: Path) -> None:
    run = runs.start(tmp_path)
    for index, reason in enumerate(Reason):
        runs.judge(run, "rewrites", {"try": index + 1}, runs.failed(f"{index:064d}", reason, "why"))
    run.finish(Outcome(None, "no candidate was proven faster", None))
    text = Page(report.render(Digest.of(run))).text
    assert "Nothing was proven faster" in text
    assert f"no candidate was proven faster. {len(Reason)} candidates judged." in text
    for reason in Reason:
        assert f"✕ failed {reason.value.replace('_', ' ')}" in text
    assert "The flag search has judged nothing yet." in text


def test_a_confirmation_that_fell_is_shown(tmp_path: Path) -> None:
    run = runs.start(tmp_path)
    runs.judge(run, "rewrites", {}, runs.passed("a" * 64, 1.05, 1.04))
    run.confirmed(runs.failed("a" * 64, Reason.HELD_OUT_REGRESSION, "0.99x on held-out prompts"))
    run.finish(Outcome(None, "no candidate was proven faster", None))
    text = Page(report.render(Digest.of(run))).text
    assert "Not confirmed" in text
    assert "✕ failed: held out regression 0.99x on held-out prompts" in text
    assert "nothing set" in text


def test_a_module_has_no_tokens(tmp_path: Path) -> None:
    call = Cluster(0, 1, 1, 1.0, isl_range=(1, 1), osl_range=(1, 1))
    run = runs.start(
        tmp_path,
        workload=Workload("crystal", "module-1", 0, (call,)),
        targets=(Target(0, Phase.CALL, 8.0, 0.0),),
    )
    text = Page(report.render(Digest.of(run))).text
    assert "crystal: its own inputs, version module-1" in text
    assert "one call, 100 % of requests" in text
    assert "no floor known" in text
    assert "Tokens" not in text
    assert "decode steps" not in text


def test_weak_spots_are_named(tmp_path: Path) -> None:
    deployment = config.Deployment("tiny", config.Engine("smollm2"), search=config.Search(flag_search=False))
    synthetic = Workload("w", "v", 9, runs.CLUSTERS, TokenSource.SYNTHETIC)
    run = runs.start(tmp_path, deployment=deployment, workload=synthetic, jail=(), left_out=0)
    page = Page(report.render(Digest.of(run)))
    assert "synthetic (random token ids)" in page.text
    assert "none: candidates ran with the rights of their user" in page.text
    assert "No flag search was run, so this result has no matched-budget comparison." in page.text
    assert "Left out of the trace nothing" in page.text
    assert len([a for _, a in page.tags if a.get("class") == "warn"]) == 3


def test_an_old_report_stays_when_the_new_one_fails(
    won: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sub" / "report.html"
    report.write(won, path)
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(StropError, match=r"report\.html: the report cannot be written: No space"):
        report.write(won, path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_that_is_a_file_is_one_clear_line(won: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StropError, match="name another file"):
        report.write(won, tmp_path / "file" / "report.html")


def test_the_digest_of_a_won_run(won: Run) -> None:
    d = Digest.of(won)
    assert d.state is State.WON
    assert d.winner == runs.candidate("d").id
    assert d.confirmed
    assert d.confirmed.overall.ratio == 1.83
    assert d.winning_trial
    assert d.winning_trial.proposal.number == 3
    assert d.searches == ("rewrites", "flags")
    assert d.spent_s("flags") == pytest.approx(70.0)
    assert dict(d.refused) == {Reason.NUMERICS: 1, Reason.NOT_FASTER: 2, Reason.TIMEOUT: 1}


def test_the_best_is_the_highest_low_end(tmp_path: Path) -> None:
    run = runs.start(tmp_path)
    sure, wild = runs.passed("a" * 64, 1.5, 1.5), runs.passed("b" * 64, 1.5, 1.5)
    assert wild.slow
    slow = replace(wild.slow, overall=Interval(1.6, 1.1, 2.4, 60))
    for verdict in (sure, Verdict("b" * 64, Status.PASSED, slow=slow)):
        runs.judge(run, "rewrites", {}, verdict)
    best = Digest.of(run).best()
    assert best
    assert best.proposal.candidate == "a" * 64


def test_the_axis_is_logarithmic_and_holds_one() -> None:
    axis = Axis.over([2.0, 4.0])
    assert axis.low < 1 < 4 < axis.high
    assert axis.at(2.0) - axis.at(1.0) == pytest.approx(axis.at(4.0) - axis.at(2.0))
    assert axis.at(axis.low) == 0
    assert axis.at(axis.high) == pytest.approx(100)


@pytest.mark.parametrize("values", [[], [1.001], [0.5, 1.9], [1.83], [40.0], [0.001, 900.0]])
def test_ticks_are_few_and_hold_one(values: list[float]) -> None:
    axis = Axis.over(values)
    assert any(math.isclose(tick, 1) for tick in axis.ticks)
    assert 1 <= len(axis.ticks) <= 9
    assert axis.ticks == sorted(set(axis.ticks))


def test_the_stairs_rise_at_the_seconds_of_the_verdicts() -> None:
    svg = charts.curve([Series("a", ((25.0, 2.0),), (), 100.0)], [Dot(25.0, 2.0, 0, "<t>")])
    at = 100 - Axis.over([2.0]).at(2.0)
    assert f"H25.000V{at:.3f}H100.000" in svg
    assert "<title>&lt;t&gt;</title>" in svg


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0, "0.00 s"),
        (0.424, "0.42 s"),
        (12.34, "12.3 s"),
        (99.96, "1 min 40 s"),
        (252.0, "4 min 12 s"),
        (3599.7, "1 h 00 min"),
        (3900.0, "1 h 05 min"),
    ],
)
def test_durations(seconds: float, said: str) -> None:
    assert words.seconds(seconds) == said


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Interval(1.0124, 1.0071, 1.0183, 60), "1.012x (1.007..1.018)"),
        (Interval(1.834, 1.79, 1.884, 60), "1.83x (1.79..1.88)"),
        (Interval(12.44, 11.0, 13.0, 60), "12.4x (11.0..13.0)"),
    ],
)
def test_intervals(found: Interval, said: str) -> None:
    assert words.interval(found) == said


def test_params_leave_out_what_is_off() -> None:
    chosen = {"mlp": "fused", "compile": "off", "threads": 0, "x\n\x1b[2J": 1.5, "b": True}
    assert words.params(chosen) == "mlp=fused x \N{REPLACEMENT CHARACTER}[2J=1.5 b=True"
    assert words.params({}) == "nothing set"


def test_a_long_line_is_cut() -> None:
    assert words.one_line("ab\n cd" * 100, 10) == "ab cdab c\N{HORIZONTAL ELLIPSIS}"
    assert words.clean("a\tb\n\u202ec") == "a\tb\n\N{REPLACEMENT CHARACTER}c"
