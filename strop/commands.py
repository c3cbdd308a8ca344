"""What the commands do. Imported only when one runs, so that `--help` stays instant."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from strop import config, loop
from strop.core import BASELINE_ID, Candidate, Status, StropError, Trial, Verdict, Version
from strop.dash import report as reports
from strop.dash import tables
from strop.dash.terminal import Checks, Progress, Quiet
from strop.doctor import examine
from strop.journal import Journal
from strop.observe import cluster, picture, summary, traffic
from strop.propose import candidates, compose
from strop.propose.rewrites import space
from strop.propose.search import Search
from strop.run import Run
from strop.ship.registry import Registry

__all__ = [
    "doctor",
    "history",
    "init",
    "observe",
    "optimize",
    "report",
    "rollback",
    "searchers",
    "show",
    "status",
    "verify",
]


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
    with _journal(home, make=True) as journal, journal.lock(deployment.name):
        with Quiet() if as_json else Progress(deployment) as listen:
            loop.optimize(deployment, journal, searchers(deployment), listen)
        run = Run.latest(journal, deployment.name)
        assert run is not None
        path = _report(journal, run, report_to) if report_to else None
        found = tables.outcome_json(run) | {"report": path and str(path)}
        _print(as_json, found, lambda: tables.outcome(run, path))


def verify(what: str, deployment: config.Deployment, home: Path | None, quick: bool, as_json: bool) -> int:
    """Judge one candidate and print every check; return the exit status."""
    candidate = candidates.read(Path(what)) if Path(what).exists() else _judged_before(what, home)
    with Quiet() if as_json else Checks(deployment) as listen:
        found = loop.verify(deployment, candidate, quick, listen)
    _print(as_json, tables.verified_json(found), lambda: tables.verified(found))
    return {Status.PASSED: 0, Status.FAILED: 1, Status.INCONCLUSIVE: 3}[found[-1].status]


def _judged_before(prefix: str, home: Path | None) -> Candidate:
    folder = home or config.state_dir()
    if not (folder / "journal.db").exists():
        raise StropError(f"{prefix}: no such folder or file, and no journal in {folder} to look for an id")
    with _journal(home) as journal:
        known = {event.key or "" for event in journal.events(kind="judged")}
        keys = {key for key in known if key.startswith(prefix)}
        if len(keys) != 1:
            raise StropError(f"{prefix}: no such folder or file, and {len(keys)} judged candidates begin so")
        return journal.get_candidate(keys.pop())


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


def observe(path: Path, settings: config.Traffic, draw_to: Path | None, as_json: bool) -> None:
    """Print what a trace asks of an engine."""
    t = settings
    trace = traffic.read(path, t.format, t.limit, t.max_isl, t.max_osl)
    clustering = cluster.fit(trace, t.max_clusters)
    facts, workload = dataclasses.asdict(summary.summary(trace)), clustering.workload
    if draw_to:
        picture.draw(trace, clustering, draw_to)
    data = tables.observed_json(facts, workload, trace.left_out) | {"dropped": dict(trace.dropped)}
    _print(as_json, data, lambda: tables.observed(facts, workload, trace.left_out))


def status(home: Path | None, as_json: bool) -> None:
    """Print each deployment: what is live, since when, what was tried."""
    with _journal(home) as journal:
        found = tables.deployed(journal)
    _print(as_json, tables.status_json(found), lambda: tables.status(found))


def history(name: str, home: Path | None, as_json: bool) -> None:
    """Print a deployment's events, oldest first."""
    with _journal(home) as journal:
        runs = {name, *(run.id for run in Run.all(journal, name))}
        found = [event for event in journal.events() if event.run in runs]
    if not found:
        raise StropError(f"nothing is recorded for {name!r}; `strop status` lists what is")
    _print(as_json, tables.history_json(found), lambda: tables.history(found))


def show(prefix: str, home: Path | None, source: bool, as_json: bool) -> None:
    """Print a candidate's verdict, checks and files."""
    with _journal(home) as journal:
        trials = [event.decode(Trial) for event in journal.events(kind="judged")]
        found = [trial for trial in trials if trial.proposal.candidate.startswith(prefix)]
        ids = {trial.proposal.candidate for trial in found}
        if len(ids) != 1:
            raise StropError(
                f"{len(ids)} judged candidates begin with {prefix!r}; `strop history` lists them"
            )
        id = ids.pop()
        confirmed = [e.decode(Verdict) for e in journal.events(kind="confirmed") if e.key == id]
        versions = [e.decode(Version) for e in journal.events(kind="published")]
        version = next((v for v in reversed(versions) if v.id == id), None)
        candidate = journal.get_candidate(id)
    trial, last = found[-1], confirmed[-1] if confirmed else None
    shown = (candidate, trial.verdict, last, version, trial.proposal.params, source)
    _print(as_json, tables.show_json(*shown), lambda: tables.show(*shown))


def rollback(name: str, home: Path | None, as_json: bool) -> None:
    """Put back what was live before."""
    with _journal(home) as journal:
        live = Registry(journal).rollback(name)
        epoch = journal.aliases(name).epoch
    found = {"deployment": name, "live": live.id if live else BASELINE_ID, "epoch": epoch}
    now = live.id[:12] if live else "the model's own forward"
    _print(as_json, found, lambda: print(f"{name}: {now} is live (epoch {epoch})"))


def report(name: str, out: Path, home: Path | None) -> None:
    """Write the HTML report of a deployment's newest run."""
    with _journal(home) as journal:
        run = Run.latest(journal, name)
        if run is None:
            raise StropError(f"nothing is recorded for {name!r}; `strop status` lists what is")
        print(_report(journal, run, out))


def _report(journal: Journal, run: Run, out: Path) -> Path:
    registry, name = Registry(journal), run.started.deployment.name
    return reports.write(run, out, versions=registry.versions(name), epoch_history=registry.moves(name))


def doctor(home: Path | None, as_json: bool) -> None:
    """Print what this machine can do."""
    found = examine(home or config.state_dir())
    _print(as_json, tables.doctor_json(found), lambda: tables.doctor(found))


def init(file: Path) -> None:
    """Write a deployment file with every key and its default."""
    if file.exists():
        raise StropError(f"{file} is there already; name another file")
    file.write_text(config.template(), encoding="utf-8")
    print(f"wrote {file}; set name, engine.model and traffic.trace, then: strop optimize {file}")


def _journal(home: Path | None, *, make: bool = False) -> Journal:
    folder = home or config.state_dir()
    if not make and not (folder / "journal.db").exists():
        raise StropError(f"no journal in {folder}; run `strop optimize` first, or name it with --home")
    return Journal.open(folder)


def _print(as_json: bool, data: Any, show: Callable[[], None]) -> None:
    if as_json:
        print(json.dumps(data, indent=1))
    else:
        show()
