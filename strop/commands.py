"""What the commands do. Imported only when one runs, so that `--help` stays instant."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from strop import config, loop
from strop.core import BASELINE_ID, StropError, Trial
from strop.dash import report as reports
from strop.dash import tables
from strop.dash.terminal import Progress, Quiet
from strop.engine import jail
from strop.engine.start import HOLDERS
from strop.journal import Aliases, Journal
from strop.observe import cluster, picture, summary, traffic
from strop.propose import compose
from strop.propose.rewrites import space
from strop.propose.search import Search
from strop.run import Run, Started
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
        found = tables.outcome(run)
        if report_to:
            found["report"] = str(reports.write(run, report_to))
    _print(as_json, found, lambda: _show_outcome(found))


def _show_outcome(found: Mapping[str, Any]) -> None:
    tables.facts({k: v for k, v in found.items() if k not in ("clusters", "phases")})
    parts = {**found["clusters"], **found["phases"]}
    tables.rows([{"part": name, "ratio": ratio} for name, ratio in parts.items()], "winner by part")
    if found["winner"]:
        name = found["deployment"]
        print(f'\nuse it:       model = strop.apply(model, "{name}")')
        print(f"take it back: strop rollback {name}")


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
    found, clustering = summary.summary(trace), cluster.fit(trace, t.max_clusters)
    facts = dataclasses.asdict(found)
    facts |= {"format": trace.format, "left_out": trace.left_out, "dropped": dict(trace.dropped)}
    clusters = tables.workload_rows(clustering.workload)
    if draw_to:
        picture.draw(trace, clustering, draw_to)
        facts["drawn"] = str(draw_to)
    _print(as_json, {**facts, "clusters": clusters}, lambda: _show_observed(facts, clusters))


def _show_observed(facts: Mapping[str, Any], clusters: list[dict[str, Any]]) -> None:
    spread = {k: v for k, v in facts.items() if isinstance(v, dict) and "p50" in v}
    plain = {k: v for k, v in facts.items() if k not in spread}
    tables.facts({k: f"{v:.3g}" if isinstance(v, float) else v for k, v in plain.items()})
    tables.rows([{"": k, **{p: f"{x:.3g}" for p, x in v.items()}} for k, v in spread.items()], "percentiles")
    tables.rows(clusters, "clusters")


def status(home: Path | None, as_json: bool) -> None:
    """Print each deployment: what is live, since when, what was tried."""
    with _journal(home) as journal:
        names = {event.decode(Started).deployment.name for event in journal.events(kind="run_started")}
        found = [_status_row(journal, name) for name in sorted(names)]
    _print(as_json, found, lambda: tables.rows(found, "deployments"))


def _status_row(journal: Journal, name: str) -> dict[str, Any]:
    registry, run = Registry(journal), Run.latest(journal, name)
    live, moves = registry.live(name), registry.moves(name)
    trials = run.trials() if run else []
    return {
        "deployment": name,
        "live": live.id[:12] if live else BASELINE_ID,
        "speedup": tables.interval_text(live.confirmed.overall) if live else "",
        "since": moves[-1].at if moves else "",
        "epoch": journal.aliases(name).epoch,
        "tried": len(trials),
        "passed": len(run.passed()) if run else 0,
        "run": "finished" if run and run.outcome else "unfinished",
    }


def history(name: str, home: Path | None, as_json: bool) -> None:
    """Print a deployment's events, oldest first."""
    with _journal(home) as journal:
        found = [
            {"at": e.at, "what": e.kind, "detail": _detail(e)}
            for e in journal.events()
            if e.run == name or e.run.startswith(f"{name}-")
        ]
    if not found:
        raise StropError(f"nothing is recorded for {name!r}; `strop status` lists what is")
    _print(as_json, found, lambda: tables.rows(found))


def _detail(event: Any) -> str:
    if event.kind == "judged":
        trial = event.decode(Trial)
        verdict = trial.verdict
        ratio = tables.interval_text(verdict.slow.overall) if verdict.slow else verdict.detail
        return f"{trial.proposal.candidate[:12]} {verdict.reason or verdict.status} {ratio}"
    if event.kind == "alias_moved":
        moved = event.decode(Aliases)
        names = " ".join(f"{k}={v[:12]}" for k, v in moved.names.items())
        return f"epoch {moved.epoch}: {names or 'live=' + BASELINE_ID}"
    return str(event.key[:12] if event.key else event.run)


def show(candidate: str, home: Path | None, source: bool, as_json: bool) -> None:
    """Print a candidate's verdict, checks and files."""
    with _journal(home) as journal:
        ids = sorted({str(e.key) for e in journal.events(kind="candidate_stored")})
        ids = [id for id in ids if id.startswith(candidate)]
        if len(ids) != 1:
            raise StropError(f"{len(ids)} candidates begin with {candidate!r}; give more of the id")
        stored = journal.get_candidate(ids[0])
        trials = [event.decode(Trial) for event in journal.events(kind="judged")]
    verdicts = [t.verdict for t in trials if t.proposal.candidate == ids[0]]
    found = {
        "id": ids[0],
        "author": stored.author,
        "files": dict(stored.files) if source else list(stored.files),
    }
    data = {**found, "verdicts": msgspec.to_builtins(verdicts)}
    _print(as_json, data, lambda: _show_candidate(found, verdicts, stored.files if source else {}))


def _show_candidate(found: Mapping[str, Any], verdicts: list[Any], files: Mapping[str, str]) -> None:
    tables.facts({**found, "files": ", ".join(found["files"])})
    for verdict in verdicts:
        said = {"verdict": verdict.reason or verdict.status, "detail": verdict.detail}
        said["slow tier"] = tables.interval_text(verdict.slow.overall if verdict.slow else None)
        said["isolation"] = ", ".join(verdict.jail)
        tables.facts(said)
        tables.rows(tables.checks(verdict), "checks")
    for name, text in files.items():
        print(f"\n--- {name}\n{text}")


def rollback(name: str, home: Path | None, as_json: bool) -> None:
    """Put back what was live before."""
    with _journal(home) as journal:
        live = Registry(journal).rollback(name)
        epoch = journal.aliases(name).epoch
    found = {"deployment": name, "live": live.id if live else BASELINE_ID, "epoch": epoch}
    _print(as_json, found, lambda: tables.facts(found))


def report(name: str, out: Path, home: Path | None) -> None:
    """Write the HTML report of a deployment's newest run."""
    with _journal(home) as journal:
        run = Run.latest(journal, name)
        if run is None:
            raise StropError(f"nothing is recorded for {name!r}; `strop status` lists what is")
        print(reports.write(run, out))


def doctor(home: Path | None, as_json: bool) -> None:
    """Print what this machine can do."""
    import importlib.util

    held = jail.probe()
    layers = {
        f"isolation {layer.name}": f"{'holds' if layer.name in held else 'MISSING'}: {layer.meaning}"
        for layer in jail.LAYERS
    }
    folder = home or config.state_dir()
    if (folder / "journal.db").exists():
        with Journal.open(folder) as journal:
            trouble = journal.check()
    else:
        trouble = ["none yet"]
    found = {
        "engines": ", ".join(HOLDERS),
        "torch": "there" if importlib.util.find_spec("torch") else "missing: pip install 'strop[torch]'",
        "compiler": shutil.which("g++") or "no g++: native rewrites are left out",
        "gpu": "/dev/nvidia0" if Path("/dev/nvidia0").exists() else "none",
        **layers,
        f"journal {folder}": "; ".join(trouble) or "sound",
    }
    _print(as_json, found, lambda: tables.facts(found))


def init(file: Path) -> None:
    """Write a deployment file with every key and its default."""
    if file.exists():
        raise StropError(f"{file} is there already; name another file")
    lines = ['name = "my-model"  # of the deployment', ""]
    for section in dataclasses.fields(config.Deployment)[1:]:
        kind = getattr(config, section.name.capitalize())
        lines.append(f"[{section.name}]")
        lines += [_template_line(field) for field in dataclasses.fields(kind)]
        lines.append("")
    file.write_text("\n".join(lines), encoding="utf-8")
    print(f"wrote {file}; set name, engine.model and traffic.trace, then: strop optimize {file}")


def _template_line(field: Any) -> str:
    if field.default is dataclasses.MISSING:
        return f'{field.name} = "smollm2"  # a folder, package:factory, or a short name'
    return f"# {field.name} = {json.dumps(field.default)}"


def _journal(home: Path | None, *, make: bool = False) -> Journal:
    folder = home or config.state_dir()
    if not make and not (folder / "journal.db").exists():
        raise StropError(f"no journal in {folder}; run `strop optimize` first, or name it with --home")
    return Journal.open(folder)


def _print(as_json: bool, data: Any, show: Callable[[], None]) -> None:
    if as_json:
        print(json.dumps(msgspec.to_builtins(data), indent=1))
    else:
        show()
