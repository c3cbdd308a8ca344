"""One self-contained HTML file about a run: no script, no network."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from strop.dash import charts, tables
from strop.dash.terminal import short
from strop.run import Run
from strop.stats import spearman

__all__ = ["write"]


def write(run: Run, path: Path) -> Path:
    """Write the report of a run in any state, replacing the file in one move."""
    from jinja2 import Environment, PackageLoader

    environment = Environment(loader=PackageLoader("strop.dash", "pages"), autoescape=True)
    text = environment.get_template("report.html.j2").render(facts(run))
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.new")
    scratch.write_text(text, encoding="utf-8")
    os.replace(scratch, path)
    return path


def facts(run: Run) -> Mapping[str, Any]:
    """Return everything the page shows."""
    trials, started, outcome = run.trials(), run.started, tables.outcome(run)
    ended = run.outcome
    verdict = run.confirmations().get(ended.winner) if ended and ended.winner else None
    both = [
        (v.fast.overall.ratio, v.slow.overall.ratio)
        for t in trials
        if (v := t.verdict).fast and v.slow
    ]
    rho = spearman(*map(list, zip(*both, strict=True))) if both else None
    parts = _parts(run, verdict)
    return {
        "started": started,
        "outcome": outcome,
        "verdict": verdict,
        "trials": [_row(trial) for trial in trials],
        "curve": charts.curve(trials),
        "scatter": charts.scatter(both),
        "pairs_of_tiers": len(both),
        "rho": rho,
        "forest": charts.forest(parts) if parts else "",
        "targets": started.targets,
        "interval": tables.interval_text,
        "clusters": {c.id: c for c in started.workload.clusters},
    }


def _parts(run: Run, verdict: Any) -> list[tuple[str, Any]]:
    if verdict is None or verdict.slow is None:
        return []
    slow = verdict.slow
    named = [
        (f"ISL {c.isl}, OSL {c.osl}", slow.clusters[c.id])
        for c in run.started.workload.clusters
        if c.id in slow.clusters
    ]
    phases = [(phase.value, found) for phase, found in slow.phases.items()]
    return [("whole workload", slow.overall), *named, *phases]


def _row(trial: Any) -> dict[str, Any]:
    verdict = trial.verdict
    return {
        "number": trial.proposal.number,
        "search": trial.proposal.search,
        "params": short(trial.proposal.params),
        "id": trial.proposal.candidate[:12],
        "fast": f"{verdict.fast.overall.ratio:.2f}x" if verdict.fast else "",
        "slow": tables.interval_text(verdict.slow.overall) if verdict.slow else "",
        "status": verdict.status.value,
        "reason": verdict.reason.value if verdict.reason else "",
        "detail": verdict.detail,
        "seconds": f"{verdict.seconds:.1f}",
    }
