"""What the commands do. Imported only when one runs, so that `--help` stays instant."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from strop import config, loop
from strop.core import Candidate, Param, StropError
from strop.dash import tables
from strop.dash import report as reports
from strop.dash.terminal import Progress, Quiet
from strop.journal import Journal
from strop.observe import cluster, picture, summary, traffic
from strop.propose import compose
from strop.propose.rewrites import space
from strop.propose.search import Search
from strop.run import Run
from strop.ship.registry import Registry

__all__ = ["doctor", "history", "init", "observe", "optimize", "report", "rollback", "show", "status"]


def optimize(
    deployment: config.Deployment,
    home: Path | None,
    report_to: Path | None,
    budget_s: float | None,
    as_json: bool,
) -> None:
    """Take one turn of the loop and say how it ended."""
    if budget_s is not None:
        search = dataclasses.replace(deployment.search, budget_s=budget_s)
        deployment = dataclasses.replace(deployment, search=search)
    with Journal.open(home or config.state_dir()) as journal, journal.lock(deployment.name):
        with Quiet() if as_json else Progress(deployment) as listen:
            loop.optimize(deployment, journal, searchers(deployment), listen)
        run = Run.latest(journal, deployment.name)
        assert run is not None
        path = report_to and reports.write(run, report_to)
        _print(as_json, tables.outcome_json(run), lambda: tables.outcome(run, path))


def searchers(deployment: config.Deployment) -> list[loop.Searcher]:
    """The built-in search, and beside it the plain flag search with the same budget."""
    any_precision, seed = deployment.policy.allow_precision_change, deployment.search.seed
    found = [
        Search(
            "rewrites",
            space.choices(space.SPACE, any_precision),
            lambda params: compose.compose(params, "search"),
            first=[space.full(space.SPACE, params) for params in space.FIRST],
            seed=seed,
        )
    ]
    if deployment.search.flag_search:
        found.append(
            Search(
                "flags",
                space.choices(space.FLAGS),
                lambda params: compose.compose_flags(params, "flags"),
                seed=seed,
            )
        )
    return list(found)
