"""One run as one HTML file that needs nothing else: no script, no network."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop import stats
from strop.core import Interval, Status, StropError, Trial, Version
from strop.dash import charts, words
from strop.dash.charts import Axis, Dot, Series
from strop.dash.digest import Digest
from strop.journal import Aliases, Event
from strop.run import Run

if TYPE_CHECKING:
    import jinja2

__all__ = ["render", "write"]


@dataclass(frozen=True, slots=True)
class _Row:
    """One line of a forest plot."""

    label: str
    note: str
    found: Interval
    series: int = 0


def write(
    run: Run, path: Path, *, versions: Sequence[Version] = (), epoch_history: Sequence[Event] = ()
) -> Path:
    """Write a run's report and return its path; an old report stays whole until the new one is.

    Args:
        run: in any state; an unfinished one is reported as far as it went.
        path: the HTML file. Its folder is made if there is none.
        versions: published ones of the deployment, oldest first.
        epoch_history: `alias_moved` events of the deployment, oldest first.

    Raises:
        StropError: the file cannot be written.
    """
    page = render(Digest.of(run), versions, epoch_history)
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(page, encoding="utf-8", errors="replace")
        os.replace(new, path)
    except OSError as error:
        with suppress(OSError):
            new.unlink()
        raise StropError(
            f"{path}: the report cannot be written: {error.strerror}; name another file"
        ) from None
    return path


def render(digest: Digest, versions: Sequence[Version] = (), epoch_history: Sequence[Event] = ()) -> str:
    """Return the page."""
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            d=digest,
            started=digest.started,
            held_out=_held_out(digest),
            compared=_compared(digest),
            curve=_curve(digest),
            tiers=_tiers(digest),
            versions=versions,
            moves=[(event.at, event.decode(Aliases)) for event in epoch_history],
        )
    )


def _environment() -> jinja2.Environment:
    import jinja2

    pages = jinja2.PackageLoader("strop.dash", "pages")
    made = jinja2.Environment(
        loader=pages,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "ratio": partial(words.ratio, sign="\N{MULTIPLICATION SIGN}"),
        "ends": partial(words.ratios, between=" to "),
        "duration": words.seconds,
        "cluster": words.cluster,
        "hardware": words.hardware,
        "workload": words.workload,
        "tokens": words.tokens,
        "params": words.params,
        "short_id": words.short_id,
        "clean": words.clean,
        "said": partial(words.one_line, most=700),
    }
    made.globals |= {"mark": charts.mark}
    return made


def _held_out(d: Digest) -> dict[str, Any] | None:
    """Return the confirmed result, whole and in parts, as a forest plot."""
    found = d.confirmed
    if found is None:
        return None
    rows = [_Row("whole workload", f"{found.overall.pairs} rounds of pairs", found.overall)]
    for id, interval in found.clusters.items():
        note = next((words.cluster(c) for c in d.started.workload.clusters if c.id == id), "")
        rows.append(_Row(f"cluster {id}", note, interval, 1))
    for phase, interval in found.phases.items():
        rows.append(_Row(phase.value, f"{interval.pairs} pairs", interval, 2))
    return _forest(rows)


def _compared(d: Digest) -> dict[str, Any] | None:
    """Return the best of every search and the confirmed winner on one scale."""
    rows = []
    if d.confirmed:
        rows.append(_Row("winner, confirmed", "held-out prompts, fresh pairs", d.confirmed.overall))
    for index, search in enumerate(d.searches):
        best = d.best(search)
        if best and best.verdict.slow:
            note = words.params(best.proposal.params)
            rows.append(_Row(f"best of {search}", note, best.verdict.slow.overall, index))
    return _forest(rows) if rows else None


def _forest(rows: list[_Row]) -> dict[str, Any]:
    axis = Axis.over([end for row in rows for end in (row.found.low, row.found.high)])
    drawn = [(row, charts.bar(axis, row.found, row.series)) for row in rows]
    return {"rows": drawn, "ruler": charts.ruler(axis)}


def _curve(d: Digest) -> str:
    """Return the chart of the best ratio so far; empty before the first verdict."""
    if not d.trials:
        return ""
    series = [_series(d.of_search(search)) for search in d.searches]
    dots = [
        Dot(trial.spent_s, trial.verdict.slow.overall.ratio, d.searches.index(search), _hint(trial))
        for trial in d.trials
        for search in (trial.proposal.search,)
        if trial.verdict.status is Status.PASSED and trial.verdict.slow
    ]
    return charts.curve(series, dots)


def _series(trials: list[Trial]) -> Series:
    steps: list[tuple[float, float]] = []
    for trial in trials:
        slow = trial.verdict.slow
        better = slow and slow.overall.ratio > (steps[-1][1] if steps else 1.0)
        if slow and better and trial.verdict.status is Status.PASSED:
            steps.append((trial.spent_s, slow.overall.ratio))
    refused = tuple(t.spent_s for t in trials if t.verdict.status is not Status.PASSED)
    return Series(trials[0].proposal.search, tuple(steps), refused, trials[-1].spent_s)


def _tiers(d: Digest) -> dict[str, Any]:
    """Return how the fast tier's ratios go with the slow tier's."""
    both = [
        (trial, trial.verdict.fast.overall.ratio, trial.verdict.slow.overall.ratio)
        for trial in d.trials
        if trial.verdict.fast and trial.verdict.slow
    ]
    dots = [Dot(x, y, d.searches.index(t.proposal.search), _hint(t)) for t, x, y in both]
    rho = stats.spearman([x for _, x, _ in both], [y for _, _, y in both])
    return {"chart": charts.scatter(dots) if dots else "", "n": len(both), "rho": rho}


def _hint(trial: Trial) -> str:
    slow = trial.verdict.slow
    found = words.interval(slow.overall) if slow else ""
    return f"#{trial.proposal.number} {found} {words.params(trial.proposal.params)}"
