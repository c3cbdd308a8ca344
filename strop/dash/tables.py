"""What the commands print: plain facts as dicts for `--json`, the same as tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from strop.core import Interval, Verdict, Workload
from strop.run import Run

__all__ = ["checks", "facts", "interval_text", "outcome", "rows", "workload_rows"]


def rows(found: Sequence[Mapping[str, Any]], title: str = "") -> None:
    """Print facts of the same keys as a table; say so when there are none."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not found:
        console.print(f"{title or 'nothing'}: none yet")
        return
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for key in found[0]:
        table.add_column(key.replace("_", " "), overflow="fold")
    for row in found:
        table.add_row(*(Text(_cell(value)) for value in row.values()))
    console.print(table)


def facts(found: Mapping[str, Any], title: str = "") -> None:
    """Print one fact a line."""
    rows([{"": key.replace("_", " "), " ": value} for key, value in found.items()], title)


def workload_rows(workload: Workload) -> list[dict[str, Any]]:
    """Return one row a cluster."""
    return [
        {
            "cluster": c.id,
            "share": f"{c.weight:.1%}",
            "isl": c.isl,
            "osl": c.osl,
            "isl_p10_p90": f"{c.isl_range[0]} to {c.isl_range[1]}",
            "osl_p10_p90": f"{c.osl_range[0]} to {c.osl_range[1]}",
            "concurrency": c.concurrency,
        }
        for c in workload.clusters
    ]


def checks(verdict: Verdict) -> list[dict[str, Any]]:
    """Return one row a check of the judge."""
    return [
        {"check": c.name, "passed": "yes" if c.passed else "no", "measured": c.measured}
        for c in verdict.checks
    ]


def interval_text(found: Interval | None) -> str:
    """Write a ratio with its interval."""
    return f"{found.ratio:.3f}x ({found.low:.3f} to {found.high:.3f})" if found else ""


def outcome(run: Run) -> dict[str, Any]:
    """Return how a run ended: the confirmed winner, each cluster, and the flag search beside it."""
    ended, started = run.outcome, run.started
    verdict = run.confirmations().get(ended.winner) if ended and ended.winner else None
    measured = verdict.slow if verdict else None
    flags = run.passed("flags")
    flag_best = flags[0].verdict.slow if flags else None
    return {
        "deployment": started.deployment.name,
        "run": run.id,
        "winner": ended.winner if ended else None,
        "reason": ended.reason if ended else "still running",
        "confirmed": interval_text(measured.overall) if measured else None,
        "clusters": {
            f"ISL {c.isl} OSL {c.osl} ({c.weight:.0%})": interval_text(measured.clusters.get(c.id))
            for c in started.workload.clusters
        }
        if measured
        else {},
        "phases": {p.value: interval_text(i) for p, i in measured.phases.items()}
        if measured
        else {},
        "flag_search_best": interval_text(flag_best.overall) if flag_best else "nothing passed",
        "trials": len(run.trials()),
        "tokens": started.workload.tokens.value,
        "left_out": started.left_out,
        "hardware": f"{started.fingerprint.device}, {started.fingerprint.cores} cores",
    }


def _cell(value: Any) -> str:
    return "" if value is None else str(value)
