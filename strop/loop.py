"""THE LOOP: observe -> plan -> propose -> measure -> gate -> ship. The only file that knows the order."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

from strop.config import Deployment
from strop.core import Candidate, Param, Proposal, Status, Tier, Trial, Verdict, Version
from strop.engine.contract import Engine, Kind
from strop.engine.start import start
from strop.journal import Journal
from strop.judge import CONFIRMATIONS, Judge
from strop.listener import Listener
from strop.observe import cluster as clusters
from strop.observe import traffic
from strop.plan import target
from strop.propose.perturb import perturbations
from strop.run import Outcome, Run
from strop.ship.registry import Registry
from strop.turn import Turn
from strop.workload import Prompts

__all__ = ["Searcher", "confirm", "observe", "optimize", "plan", "search", "ship", "verify"]


class Searcher(Protocol):
    """Any agent: asked for candidates, told what became of them."""

    name: str
    trusted: bool
    """Whether it is strop's own, and proposes nothing but strop's own code."""

    def ask(self) -> tuple[dict[str, Param], Candidate] | None:
        """Return the next candidate and the choices behind it; None when there is none left."""

    def tell(self, params: dict[str, Param], verdict: Verdict) -> None:
        """Take in a verdict."""


def optimize(
    deployment: Deployment, journal: Journal, searchers: Sequence[Searcher], listen: Listener
) -> Outcome:
    """Take one turn of the loop and return how it ended. Safe to kill and call again."""
    listen.stage("start", f"{deployment.engine.kind} engine, {deployment.engine.model}")
    with start(deployment, lambda line: listen.stage("start", line)) as engine:
        turn = observe(deployment, engine, listen)
        turn.draw_final_questions()  # a text that is too short is told before the search, not after
        plan(turn, listen)
        if not turn.recall(journal):
            listen.stage("calibrate", "the baseline's own sums in other orders")
            turn.calibrate(perturbations())
        run = turn.open_run(journal)
        judge = Judge(turn, listen)
        for searcher in searchers:
            search(turn, run, searcher, judge, listen)
        trusted = {searcher.name for searcher in searchers if searcher.trusted}
        winner = confirm(run, judge, trusted, listen)
        outcome = ship(turn, run, winner, listen)
        run.finish(outcome)
        return outcome


def verify(deployment: Deployment, candidate: Candidate, quick: bool, listen: Listener) -> list[Verdict]:
    """Judge one candidate and nothing else; unless `quick`, a passed one again on held-out text."""
    listen.stage("start", f"{deployment.engine.kind} engine, {deployment.engine.model}")
    with start(deployment, lambda line: listen.stage("start", line)) as engine:
        turn = observe(deployment, engine, listen)
        if not quick:
            turn.draw_final_questions()
        plan(turn, listen)
        listen.stage("calibrate", "the baseline's own sums in other orders")
        turn.calibrate(perturbations())
        judge = Judge(turn, listen)
        listen.stage("judge", candidate.id[:12])
        found = [judge(candidate)]
        if found[0].status is Status.PASSED and not quick:
            listen.stage("confirm", "held-out text, fresh pairs")
            found.append(judge.confirm(candidate))
        return found


def observe(deployment: Deployment, engine: Engine, listen: Listener) -> Turn:
    """Read the traffic, cluster it, and get real text to cut its prompts from."""
    listen.stage("observe", deployment.traffic.trace)
    held = engine.describe()
    if held.kind is Kind.MODULE:
        return Turn(deployment, engine, clusters.one_call(deployment.name), None)
    t = deployment.traffic
    trace = traffic.read(Path(t.trace), t.format, t.limit, t.max_isl, t.max_osl)
    workload = clusters.cluster(trace, t.max_clusters, concurrency=t.concurrency, tokens=t.tokens)
    prompts = Prompts(held.tokenizer, held.vocab, text=t.text, tokens=t.tokens)
    return Turn(deployment, engine, workload, prompts, trace.left_out)


def plan(turn: Turn, listen: Listener) -> None:
    """Measure what the machine can do and where the baseline's time goes: the targets."""
    listen.stage("plan", "bandwidth and baseline")
    turn.measure_floors()
    steps = {cluster.id: turn.baseline_ms(cluster) for cluster in turn.workload.clusters}
    found = target.targets(turn.workload.clusters, steps, turn.floor_ms[Tier.SLOW])
    turn.targets = tuple(found)


def search(turn: Turn, run: Run, searcher: Searcher, judge: Judge, listen: Listener) -> None:
    """Propose and judge until the searcher's budget is spent."""
    listen.stage("search", searcher.name)
    budget_s = turn.deployment.search.budget_for_s(searcher.name)
    judge.best_fast = 0.0  # each search is measured by its own best, or the flags had no chance
    for trial in run.trials(searcher.name):
        searcher.tell(dict(trial.proposal.params), trial.verdict)
        judge.learn(trial.verdict)
    while run.spent_s(searcher.name) < budget_s and not turn.out_of_trials(run, searcher.name):
        proposal = run.pending(searcher.name) or _propose(run, searcher)
        if proposal is None:
            break
        listen.proposed(proposal)
        candidate = run.journal.get_candidate(proposal.candidate)
        verdict = judge(candidate, trusted=searcher.trusted)
        trial = Trial(proposal, verdict, run.spent_s(searcher.name) + verdict.seconds)
        run.judged(trial)
        searcher.tell(dict(proposal.params), verdict)
        listen.judged(trial)


def _propose(run: Run, searcher: Searcher) -> Proposal | None:
    """Ask for a candidate that this run has not judged yet, and record it before it runs."""
    judged = {trial.proposal.candidate: trial.verdict for trial in run.trials()}
    for _ in range(100):
        asked = searcher.ask()
        if asked is None:
            return None
        params, candidate = asked
        if candidate.id not in judged:
            run.journal.put_candidate(candidate)
            proposal = Proposal(run.proposals(), searcher.name, candidate.id, params)
            run.propose(proposal)
            return proposal
        searcher.tell(params, judged[candidate.id])
    return None


def confirm(run: Run, judge: Judge, trusted: Collection[str], listen: Listener) -> Verdict | None:
    """Measure the winner again on held-out prompts and fresh pairs; the next best if it fails.

    `trusted` are the searches that propose nothing but strop's own code.
    """
    known = run.confirmations()
    for trial in run.passed()[:CONFIRMATIONS]:
        id = trial.proposal.candidate
        if id not in known:
            listen.stage("confirm", id[:12])
            own = trial.proposal.search in trusted
            run.confirmed(judge.confirm(run.journal.get_candidate(id), trusted=own))
        verdict = run.confirmations()[id]
        if verdict.status is Status.PASSED:
            return verdict
    return None


def ship(turn: Turn, run: Run, winner: Verdict | None, listen: Listener) -> Outcome:
    """Publish and promote the confirmed winner, unless what is live is as good."""
    flags = run.passed("flags")
    best = flags[0].proposal.candidate if flags else None
    if winner is None or winner.slow is None:
        return Outcome(None, "no candidate was proven faster", best)
    name, registry = turn.deployment.name, Registry(run.journal)
    listen.stage("ship", winner.candidate[:12])
    live = registry.live(name)
    version = Version(name, winner.candidate, turn.description.fingerprint, turn.guards(), winner.slow)
    registry.publish(version)
    if live and live.id != version.id and _as_good(live, version):
        kept = f"confirmed, but what is live was confirmed at {live.confirmed.overall.ratio:.2f}x and stays"
        return Outcome(None, kept, best)
    if live is None or live.id != version.id:
        registry.promote(name, version.id)
    return Outcome(version.id, "confirmed on held-out prompts and fresh pairs", best)


def _as_good(live: Version, winner: Version) -> bool:
    """Whether a winner is not clearly faster than what is live for the very same model and machine."""
    same = live.fingerprint == winner.fingerprint
    return same and winner.confirmed.overall.low <= live.confirmed.overall.ratio
