"""What the commands print, each with a twin that returns the same as plain data for `--json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.core import Candidate, Interval, Measurement, Param, Trial, Verdict, Version, Workload
from strop.dash import words
from strop.dash.digest import Digest
from strop.dash.printing import plain, say, table
from strop.dash.terminal import trial_line
from strop.journal import Aliases, Event, Journal
from strop.run import Outcome, Run, Started

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "Deployed",
    "Finding",
    "deployed",
    "doctor",
    "doctor_json",
    "history",
    "history_json",
    "observed",
    "observed_json",
    "outcome",
    "outcome_json",
    "show",
    "show_json",
    "status",
    "status_json",
    "verified",
    "verified_json",
]

Json = dict[str, Any]

_LENGTHS = ("p10", "p50", "p90", "p99", "mean", "max")


@dataclass(frozen=True, slots=True)
class Deployed:
    """Where one deployment stands."""

    name: str
    live: str | None
    """Id of the live version; None is the model's own forward pass."""
    ratio: Interval | None
    """What was confirmed of it."""
    since: str
    """UTC, when the names moved last; empty when they never did."""
    previous: str | None
    trials: int
    """Candidates judged, over all runs."""
    running: bool
    """Whether its newest run has no end yet."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that the doctor looked at."""

    name: str
    ok: bool
    found: str
    mend: str = ""
    """What to do when it is not ok."""


def deployed(journal: Journal) -> list[Deployed]:
    """Return where every deployment of a journal stands, by name."""
    names = {e.decode(Started).deployment.name for e in journal.events(kind="run_started")}
    return [_deployed(journal, name) for name in sorted(names)]


def _deployed(journal: Journal, name: str) -> Deployed:
    started = journal.events(kind="run_started")
    runs = [e.run for e in started if e.decode(Started).deployment.name == name]
    aliases, moves = journal.aliases(name), journal.events(run=name, kind="alias_moved")
    live = aliases.names.get("live")
    versions = [e.decode(Version) for e in journal.events(run=name, kind="published")]
    proofs = [v.confirmed.overall for v in versions if v.id == live]
    return Deployed(
        name=name,
        live=live,
        ratio=proofs[-1] if proofs else None,
        since=moves[-1].at if moves else "",
        previous=aliases.names.get("previous"),
        trials=sum(len(journal.events(run=run, kind="judged")) for run in runs),
        running=not journal.events(run=runs[-1], kind="run_finished"),
    )


def status(rows: Sequence[Deployed], console: Console | None = None) -> None:
    """Print one line a deployment."""
    if not rows:
        say(console, "nothing yet; `strop init` writes a deployment file to begin with")
        return
    cells = [
        (
            row.name,
            words.short_id(row.live) if row.live else "the model's own",
            words.interval(row.ratio) if row.ratio else "-",
            _when(row.since) or "-",
            str(row.trials),
            "not finished" if row.running else "finished",
        )
        for row in rows
    ]
    say(console, table(("deployment", "live", "confirmed", "since (UTC)", "tried", "last run"), cells))


def status_json(rows: Sequence[Deployed]) -> Json:
    """Return the same as plain data."""
    return {"deployments": plain(rows)}


def history(events: Sequence[Event], console: Console | None = None) -> None:
    """Print events, oldest first; a proposal is left to its verdict."""
    cells = [(_when(e.at), e.kind.replace("_", " "), _told(e)) for e in events if e.kind != "proposed"]
    if not cells:
        say(console, "nothing has happened yet")
        return
    say(console, table(("at (UTC)", "what", ""), cells))


def history_json(events: Sequence[Event]) -> Json:
    """Return the same as plain data, proposals too."""
    return {
        "events": [
            {"seq": e.seq, "at": e.at, "run": e.run, "kind": e.kind, "body": e.decode(object)} for e in events
        ]
    }


def _told(event: Event) -> str:
    """Return what an event says, on one line."""
    if event.kind == "run_started":
        started = event.decode(Started)
        return f"{event.run}: {words.workload(started.workload)}; {words.hardware(started.fingerprint)}"
    if event.kind == "judged":
        return trial_line(event.decode(Trial))
    if event.kind == "confirmed":
        return _judged(event.decode(Verdict))
    if event.kind == "published":
        version = event.decode(Version)
        return f"{words.short_id(version.id)}  {words.interval(version.confirmed.overall)}"
    if event.kind == "run_finished":
        ended = event.decode(Outcome)
        return f"{words.short_id(ended.winner or 'no winner')}: {words.one_line(ended.reason)}"
    if event.kind == "alias_moved":
        moved = event.decode(Aliases)
        live = words.short_id(moved.names["live"]) if "live" in moved.names else "the model's own"
        return f"live: {live}  (epoch {moved.epoch})"
    return words.one_line(event.body, 100)


def _judged(verdict: Verdict) -> str:
    found = words.interval(verdict.slow.overall) if verdict.slow else ""
    parts = (words.short_id(verdict.candidate), words.result(verdict), found, words.one_line(verdict.detail))
    return "  ".join(part for part in parts if part)


def verified(found: Sequence[Verdict], console: Console | None = None) -> None:
    """Print how a judgement ended; its checks were shown as they were made."""
    for title, verdict in zip(("judged", "held out"), found, strict=False):
        say(console, f"{title}: {_judged(verdict)}  ({words.seconds(verdict.seconds)})")


def verified_json(found: Sequence[Verdict]) -> Json:
    """Return the same as plain data: the last verdict decides."""
    last = found[-1]
    record = {"candidate": last.candidate, "status": last.status, "reason": last.reason}
    return dict(plain({**record, "detail": last.detail, "verdicts": list(found)}))


def show(
    candidate: Candidate,
    verdict: Verdict | None = None,
    confirmed: Verdict | None = None,
    version: Version | None = None,
    params: Mapping[str, Param] | None = None,
    source: bool = False,
    console: Console | None = None,
) -> None:
    """Print a candidate: how it was judged, every check, where it may run, its files."""
    author = words.one_line(f"by {candidate.author}, from {words.short_id(candidate.parent)}")
    say(console, f"{candidate.id}\n{author}  {words.params(params) if params else ''}")
    for title, found in (("search", verdict), ("held out", confirmed)):
        say(console, f"\n{title}: {_judged(found) if found else 'not judged'}")
        if found and found.checks:
            rows = [
                (c.name, "passed" if c.passed else "failed", words.one_line(c.measured, 400))
                for c in found.checks
            ]
            say(console, table(("check", "", "measured"), rows))
    if version:
        guards = version.guards
        shapes = f"batches up to {guards.max_batch}, {guards.max_context:,} tokens"
        where = shapes if guards.max_batch else f"shapes {guards.shapes}"
        say(console, f"\npublished for {version.deployment}: {guards.device}, {guards.dtype}, {where}")
    for name in sorted(candidate.files) if source else ():
        say(console, f"\n--- {words.one_line(name)}\n{words.clean(candidate.files[name])}")


def show_json(
    candidate: Candidate,
    verdict: Verdict | None = None,
    confirmed: Verdict | None = None,
    version: Version | None = None,
    params: Mapping[str, Param] | None = None,
    source: bool = False,
) -> Json:
    """Return the same as plain data."""
    record: Json = {
        "id": candidate.id,
        "author": candidate.author,
        "parent": candidate.parent,
        "params": dict(params or {}),
        "verdict": verdict,
        "confirmed": confirmed,
        "version": version,
        "files": dict(candidate.files) if source else sorted(candidate.files),
    }
    return dict(plain(record))


def observed(
    summary: Mapping[str, Any], workload: Workload, left_out: int = 0, console: Console | None = None
) -> None:
    """Print what a trace asks of an engine.

    Args:
        summary: `dataclasses.asdict` of the trace's summary.
        workload: its clusters.
        left_out: requests that were too long for the limits.
        console: where to print.
    """
    say(console, f"{words.workload(workload)}; {left_out:,} left out as too long")
    rows = []
    for name, unit in (("isl", "tokens"), ("osl", "tokens"), ("interarrival_s", "s"), ("concurrency", "")):
        if found := summary.get(name):
            label = f"{name.removesuffix('_s')}, {unit}" if unit else name
            rows.append((label, *(f"{found[key]:,.4g}" for key in _LENGTHS)))
    say(console, table(("", *_LENGTHS), rows))
    say(console, words.one_line(f"concurrency: {summary.get('concurrency_note', '')}"))
    say(console, f"{100 * summary.get('cached_share', 0.0):.1f} % of input tokens repeat a prefix")
    cells = [
        (str(c.id), words.cluster(c), _range(c.isl_range), _range(c.osl_range)) for c in workload.clusters
    ]
    say(console, table(("cluster", "medoid, tokens", "in, p10 to p90", "out, p10 to p90"), cells))


def observed_json(summary: Mapping[str, Any], workload: Workload, left_out: int = 0) -> Json:
    """Return the same as plain data."""
    return {"summary": plain(summary), "workload": plain(workload), "left_out": left_out}


def doctor(findings: Sequence[Finding], console: Console | None = None) -> None:
    """Print what this machine can do, and what to mend."""
    cells = [
        (
            "ok" if f.ok else "no",
            f.name,
            words.one_line(f.found, 400) + (f"; {f.mend}" if f.mend and not f.ok else ""),
        )
        for f in findings
    ]
    say(console, table(("", "", "found"), cells))


def doctor_json(findings: Sequence[Finding]) -> Json:
    """Return the same as plain data."""
    return {"ok": all(f.ok for f in findings), "findings": [asdict(f) for f in findings]}


def outcome(run: Run, report: Path | None = None, console: Console | None = None) -> None:
    """Print how a run ended, with all that its ratio depends on, and what to do next."""
    d = Digest.of(run)
    name, found, started = d.started.deployment.name, d.confirmed, d.started
    if found:
        best = f"{words.interval(found.overall)}, {100 * found.overall.confidence:g} % confidence, held out"
        say(console, f"\n{name}: {best}")
        say(console, table(("", "ratio", "interval", ""), _parts(d, found)))
    else:
        reason = d.outcome.reason if d.outcome else "not finished; the same command goes on"
        say(console, f"\n{name}: {words.one_line(reason)}")
    say(console, "")
    say(console, table(("search", "best", "tried", "spent", "choices"), _searches(d)))
    say(console, f"\nhardware  {words.hardware(started.fingerprint)}")
    left_out = f"; {started.left_out:,} left out as too long" if started.left_out else ""
    say(console, f"workload  {words.workload(started.workload)}{left_out}")
    if not d.is_module:
        say(console, f"tokens    {words.tokens(started.workload.tokens)}")
    say(console, f"isolation {', '.join(started.jail) or 'none'}")
    say(console, "\nnext")
    say(console, table((), _next(d, report)))


def outcome_json(run: Run) -> Json:
    """Return the same as plain data."""
    d = Digest.of(run)
    searches = {
        name: {
            "candidate": best.proposal.candidate if best else None,
            "params": dict(best.proposal.params) if best else {},
            "ratio": best.verdict.slow.overall if best and best.verdict.slow else None,
            "tried": len(d.of_search(name)),
            "spent_s": d.spent_s(name),
            "budget_s": d.budget_s(name),
        }
        for name in d.searches
        for best in (d.best(name),)
    }
    record: Json = {
        "deployment": d.started.deployment.name,
        "run": d.run,
        "state": d.state.value,
        "winner": d.winner,
        "reason": d.outcome.reason if d.outcome else None,
        "confirmed": d.confirmed,
        "searches": searches,
        "refused": {reason.value: count for reason, count in d.refused.most_common()},
        "workload": d.started.workload,
        "left_out": d.started.left_out,
        "fingerprint": d.started.fingerprint,
        "jail": d.started.jail,
    }
    return dict(plain(record))


def _parts(d: Digest, found: Measurement) -> list[tuple[str, ...]]:
    """Return the whole workload, each cluster and each phase of a measurement."""
    known = {cluster.id: words.cluster(cluster) for cluster in d.started.workload.clusters}
    parts = [("whole workload", found.overall, f"{found.overall.pairs} rounds of pairs")]
    parts += [(f"cluster {id}", part, known.get(id, "")) for id, part in found.clusters.items()]
    parts += [(phase.value, part, f"{part.pairs} pairs") for phase, part in found.phases.items()]
    return [(label, words.ratio(i.ratio), words.ratios(i), note) for label, i, note in parts]


def _searches(d: Digest) -> list[tuple[str, ...]]:
    """Return one row a search, the flag search among them even when it did not run."""
    rows: list[tuple[str, ...]] = []
    for name in d.searches:
        best = d.best(name)
        slow = best.verdict.slow if best else None
        spent = f"{words.seconds(d.spent_s(name))} of {words.seconds(d.budget_s(name))}"
        found = words.interval(slow.overall) if slow else "none faster"
        choices = words.params(best.proposal.params) if best else ""
        rows.append((words.one_line(name), found, str(len(d.of_search(name))), spent, choices))
    if "flags" not in d.searches:
        why = "not begun" if d.started.deployment.search.flag_search else "search.flag_search is off"
        rows.append(("flags", "-", "0", "-", why))
    return rows


def _next(d: Digest, report: Path | None) -> list[tuple[str, ...]]:
    """Return commands that make sense now, and what each does."""
    name = words.one_line(d.started.deployment.name)
    rows: list[tuple[str, ...]] = []
    if d.winner and d.outcome:
        rows.append((f'  strop.apply(model, "{name}")', "use it in Python"))
        rows.append((f"  strop rollback {name}", "take it back"))
    shown = d.winner or (best.proposal.candidate if (best := d.best()) else None)
    if shown:
        rows.append((f"  strop show {words.short_id(shown)}", "every check and what it measured"))
    rows.append((f"  strop history {name}", "every verdict"))
    rows.append((f"  {report}", "the report") if report else (f"  strop report {name}", "write the report"))
    return rows


def _range(found: tuple[int, int]) -> str:
    return f"{found[0]:,} to {found[1]:,}" if found[1] else "-"


def _when(at: str) -> str:
    return at[:19].replace("T", " ")
