"""What the commands print: plain facts as dicts for `--json`, the same as tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from strop.core import Interval, Verdict, Workload
from strop.dash import words
from strop.dash.digest import Digest, State
from strop.run import Run

__all__ = ["checks", "facts", "interval_text", "outcome", "rows", "workload_rows"]


def rows(found: Sequence[Mapping[str, Any]], title: str = "") -> None:
    """Print facts of the same keys as a table; say so when there are none."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not found:
        console.print(Text(f"{title or 'nothing'}: none yet"))
        return
    heading = Text(title) if title else None
    table = Table(title=heading, title_justify="left", box=None, pad_edge=False)
    for key in found[0]:
        table.add_column(Text(_cell(key).replace("_", " ")), overflow="fold")
    for row in found:
        table.add_row(*(Text(_cell(value)) for value in row.values()))
    # A pipe has no width of its own: 80 columns would fold every id.
    console.print(table, width=None if console.is_terminal else max(console.width, 160))


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
    """Return how a run ended and all that its ratio depends on, the flag search beside it."""
    d = Digest.of(run)
    started, found = d.started, d.confirmed
    return {
        "deployment": started.deployment.name,
        "run": d.run,
        "winner": d.outcome.winner if d.outcome else None,
        "reason": d.outcome.reason if d.outcome else "still running",
        "confirmed": interval_text(found.overall) if found else None,
        "clusters": {
            f"cluster {c.id}: {words.cluster(c)}": interval_text(found.clusters.get(c.id))
            for c in started.workload.clusters
        }
        if found
        else {},
        "phases": {p.value: interval_text(i) for p, i in found.phases.items()} if found else {},
        "flag_search_best": _flag_best(d),
        "flag_search_spent": _spent(d, "flags"),
        "rewrite_search_spent": _spent(d, "rewrites"),
        "trials": len(d.trials),
        "refused": sum(d.refused.values()),
        "workload": words.workload(started.workload),
        "tokens": started.workload.tokens.value,
        "left_out": started.left_out,
        "hardware": words.hardware(started.fingerprint),
        "isolation": ", ".join(started.jail) or "none",
    }


def _flag_best(d: Digest) -> str:
    if not d.started.deployment.search.flag_search:
        return "not searched: search.flag_search is off"
    best = d.best("flags")
    if best and best.verdict.slow:
        return f"{interval_text(best.verdict.slow.overall)} {words.params(best.proposal.params)}"
    begun = "flags" in d.searches or d.state is not State.RUNNING
    return "nothing passed" if begun else "not begun"


def _spent(d: Digest, search: str) -> str:
    """Return what a search spent of its budget, and on how many candidates."""
    spent, budget = words.seconds(d.spent_s(search)), words.seconds(d.budget_s(search))
    return f"{spent} of {budget}, {len(d.of_search(search))} judged"


def _cell(value: Any) -> str:
    return "" if value is None else words.clean(str(value))
