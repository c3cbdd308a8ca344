"""THE LOOP: observe -> plan -> propose -> measure -> gate -> ship. The only file that knows the order."""

from __future__ import annotations

import hashlib
import hmac
import math
import random
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from strop.config import Deployment
from strop.core import (
    Candidate,
    Check,
    Cluster,
    EngineGone,
    Fault,
    Inconclusive,
    Measurement,
    Pair,
    Param,
    Phase,
    Proposal,
    Reason,
    Status,
    Tier,
    Trial,
    Verdict,
    Version,
    Workload,
)
from strop.engine.client import ProcessEngine
from strop.engine.contract import Batch, Kind, Role
from strop.engine.start import start
from strop.gate import admit, fair_baseline, physics, speed, timed_outputs, tokens
from strop.gate.exam import Exam, noise, sit
from strop.journal import Journal
from strop.measure import pairing
from strop.measure.step import Bench, Timed
from strop.observe import cluster as clusters
from strop.observe import traffic
from strop.plan import hardware, target
from strop.run import Outcome, Run
from strop.ship.registry import Registry
from strop.turn import Turn
from strop.workload import Prompts

__all__ = ["Judge", "Listener", "Searcher", "confirm", "optimize", "search", "ship"]

CONFIRMATIONS = 3
"""So many of the best candidates may try to confirm their gain on fresh pairs, and share alpha."""
_PROMISING = 0.97
"""A candidate goes on to the slow tier when its fast ratio is this share of the best one yet."""


class Searcher(Protocol):
    """Any agent: asked for candidates, told what became of them."""

    name: str

    def ask(self) -> tuple[dict[str, Param], Candidate] | None:
        """Return the next candidate and the choices behind it; None when there is none left."""

    def tell(self, params: dict[str, Param], verdict: Verdict) -> None:
        """Take in a verdict."""


class Listener(Protocol):
    """Sees the loop at work; draws progress, or nothing."""

    def stage(self, name: str, detail: str = "") -> None:
        """A stage of the loop begins."""

    def proposed(self, proposal: Proposal) -> None:
        """A candidate is about to be judged."""

    def tier(self, tier: Tier, rounds: int, of: int) -> None:
        """So many rounds of pairs are done."""

    def judged(self, trial: Trial) -> None:
        """A verdict was recorded."""


def optimize(
    deployment: Deployment, journal: Journal, searchers: Sequence[Searcher], listen: Listener
) -> Outcome:
    """Take one turn of the loop and return how it ended. Safe to kill and call again."""
    listen.stage("start", f"{deployment.engine.kind} engine, {deployment.engine.model}")
    with start(deployment, lambda line: listen.stage("start", line)) as engine:
        turn = observe(deployment, engine, listen)
        turn.draw_final_questions()  # a text that is too short is told before the search, not after
        plan(turn, listen)
        run = turn.open_run(journal)
        judge = Judge(turn, listen)
        for searcher in searchers:
            search(turn, run, searcher, judge, listen)
        winner = confirm(run, judge, listen)
        outcome = ship(turn, run, winner, listen)
        run.finish(outcome)
        return outcome


def observe(deployment: Deployment, engine: ProcessEngine, listen: Listener) -> Turn:
    """Read the traffic, cluster it, and get real text to cut its prompts from."""
    listen.stage("observe", deployment.traffic.trace)
    held = engine.describe()
    if held.kind is Kind.MODULE:
        return Turn(deployment, engine, _one_call(deployment.name), None)
    t = deployment.traffic
    trace = traffic.read(Path(t.trace), t.format, t.limit, t.max_isl, t.max_osl)
    workload = clusters.cluster(trace, t.max_clusters, concurrency=t.concurrency, tokens=t.tokens)
    prompts = Prompts(held.tokenizer, held.vocab, text=t.text, tokens=t.tokens)
    return Turn(deployment, engine, workload, prompts, trace.left_out)


def plan(turn: Turn, listen: Listener) -> None:
    """Measure what the machine can do and where the baseline's time goes: the targets."""
    listen.stage("plan", "bandwidth and baseline")
    turn.bandwidth = hardware.read_bandwidth()
    turn.floor_ms = {tier: target.decode_floor_ms(turn.description, tier, turn.bandwidth) for tier in Tier}
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
        verdict = judge(run.journal.get_candidate(proposal.candidate))
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


@dataclass(slots=True)
class Judge:
    """Judges one candidate: cheapest check first, and the first no ends it."""

    turn: Turn
    listen: Listener
    best_fast: float = 0.0
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    """Lives only here; every seed follows from it and the candidate's hash."""

    def __call__(self, candidate: Candidate) -> Verdict:
        """Return the verdict. Never raises for anything the candidate does."""
        verdict = self.conclude(candidate, self._judge)
        self.learn(verdict)
        return verdict

    def conclude(self, candidate: Candidate, work: Callable[[Candidate, Record], None]) -> Verdict:
        """Do the work, turn however it ends into a verdict, and clean up."""
        started, record = time.monotonic(), Record(candidate.id)
        try:
            work(candidate, record)
            verdict = record.verdict(Status.PASSED)
        except Fault as fault:
            verdict = record.verdict(Status.FAILED, fault.reason, fault.detail)
        except Inconclusive as unsure:
            verdict = record.verdict(Status.INCONCLUSIVE, None, str(unsure))
        except EngineGone as gone:
            detail = f"the engine died with it ({gone})"
            verdict = record.verdict(Status.FAILED, Reason.CRASHED, detail)
        finally:
            self._clean_up()
        return replace(verdict, jail=self.turn.jail, seconds=time.monotonic() - started)

    def _judge(self, candidate: Candidate, record: Record) -> None:
        policy = self.turn.deployment.policy
        record.add(*admit.admit(candidate, policy.allow_precision_change))
        # Fast tier: the first K layers.
        self._load(candidate, Tier.FAST, record)
        record.add(*sit(self.turn.exam(Tier.FAST, candidate), candidate.id))
        self.race(candidate, Tier.FAST, policy.pairs_fast, record)
        self._demand_promising(record)
        # Slow tier: all layers, the whole workload.
        self._load(candidate, Tier.SLOW, record)
        exam = self.turn.exam(Tier.SLOW, candidate)
        record.add(*sit(exam, candidate.id))
        runs = self.race(candidate, Tier.SLOW, policy.pairs_slow, record)
        record.add(physics.possible(_step_ms(runs), self.turn.floor_ms[Tier.SLOW]))
        record.add(self.rescore(candidate, exam, runs))
        record.add(fair_baseline.demand(self.turn.engine, _sample(runs)))
        self._restore(record)

    def confirm(self, candidate: Candidate) -> Verdict:
        """Judge a winner again: held-out text, fresh pairs, every position the policy demands."""
        verdict = self.conclude(candidate, self._confirm)
        if verdict.reason is Reason.NOT_FASTER:
            return replace(verdict, reason=Reason.HELD_OUT_REGRESSION)
        return verdict

    def _confirm(self, candidate: Candidate, record: Record) -> None:
        turn = self.turn
        turn.engine.load(candidate, Tier.SLOW)
        record.add(*sit(turn.final_exam(candidate), candidate.id))
        runs = self.race(candidate, Tier.SLOW, turn.final_rounds(), record, held_out=True)
        record.add(self.rescore(candidate, turn.exam(Tier.SLOW, candidate), runs))
        record.add(fair_baseline.demand(turn.engine, _sample(runs)))

    def race(
        self,
        candidate: Candidate,
        tier: Tier,
        rounds: int,
        record: Record,
        *,
        held_out: bool = False,
    ) -> list[Timed]:
        """Time interleaved pairs until the evidence is in, and demand that it shows a gain.

        Raises:
            Fault: not_faster, or whatever the candidate does.
            Inconclusive: the rounds are used up and nothing is certain.
        """
        turn, rng = self.turn, self.rng(candidate, tier, held_out)
        workload = turn.tier_workload(tier)
        steps = turn.deployment.policy.decode_steps
        bench = Bench(turn.engine, tier, turn.draw(held_out), steps)
        bench.warm_up(candidate.id, workload.clusters, rng)
        runs: list[Timed] = []
        for count, slots in enumerate(pairing.rounds(workload, rounds, rng), 1):
            runs += [bench.run(candidate.id, workload.cluster(slot.cluster), slot) for slot in slots]
            self.listen.tier(tier, count, rounds)
            if not held_out and not speed.keep_going(_pairs(runs), workload, turn.deployment.policy):
                break
        policy = turn.deployment.policy
        if held_out:
            policy = replace(policy, alpha=policy.alpha / CONFIRMATIONS)
        decision = speed.decide(_pairs(runs), workload, policy)
        record.measured[tier] = turn.measurement(tier, decision, bench, runs)
        speed.demand(decision, policy)
        return runs

    def rescore(self, candidate: Candidate, exam: Exam, runs: list[Timed]) -> Check:
        """Score the tokens of timed runs again, in a process that never ran a candidate."""
        rng = self.rng(candidate, Tier.SLOW, True)
        if self.turn.description.kind is Kind.MODULE:
            called = [(run.batch, run.candidate_outputs) for run in runs]
            return timed_outputs.recheck(self.turn.engine, called, exam.policy, rng)
        timed = [(run.batch, run.baseline_tokens, run.candidate_tokens) for run in runs]
        return tokens.rescore(self.turn.engine, Tier.SLOW, timed, noise(exam), rng)

    def rng(self, candidate: Candidate, tier: Tier, held_out: bool) -> random.Random:
        """Seeds that no candidate can foresee: HMAC of its frozen hash under the judge's secret."""
        message = f"{candidate.id} {tier.value} {held_out}".encode()
        return random.Random(hmac.new(self.secret, message, hashlib.sha256).digest())

    def learn(self, verdict: Verdict) -> None:
        """Keep the best fast ratio of a candidate that was not refused."""
        if verdict.fast and verdict.status is not Status.FAILED:
            self.best_fast = max(self.best_fast, verdict.fast.overall.ratio)

    def _load(self, candidate: Candidate, tier: Tier, record: Record) -> None:
        loaded = self.turn.engine.load(candidate, tier)
        text = f"built in {loaded.build_ms:.0f} ms, {loaded.extra_bytes / 1e6:.0f} MB more memory"
        record.add(Check(f"load_{tier.value}", True, text))

    def _demand_promising(self, record: Record) -> None:
        fast = record.measured[Tier.FAST]
        if fast.overall.ratio < _PROMISING * self.best_fast:
            raise Inconclusive(
                f"{fast.overall.ratio:.2f}x on the fast tier, the best is {self.best_fast:.2f}x: "
                "not measured on the slow tier"
            )

    def _restore(self, record: Record) -> None:
        self.turn.engine.restore()
        record.add(Check("restore", True, "the baseline's outputs have the bits they had before"))

    def _clean_up(self) -> None:
        """Give the next candidate a fresh worker; a dead owner is started again.

        A fork costs milliseconds, and what a candidate patched in its process goes with it.
        """
        try:
            self.turn.engine.replace(Role.ACTIVE)
        except EngineGone:
            self.turn.engine.revive()


@dataclass(slots=True)
class Record:
    """Notes of the judge: what is known about a candidate while it is judged."""

    candidate: str
    checks: list[Check] = field(default_factory=list)
    measured: dict[Tier, Measurement] = field(default_factory=dict)

    def add(self, *checks: Check) -> None:
        """Note checks that passed."""
        self.checks += checks

    def verdict(self, status: Status, reason: Reason | None = None, detail: str = "") -> Verdict:
        """Return the verdict with all that is known."""
        fast, slow = self.measured.get(Tier.FAST), self.measured.get(Tier.SLOW)
        return Verdict(self.candidate, status, reason, detail, tuple(self.checks), fast, slow)


def confirm(run: Run, judge: Judge, listen: Listener) -> Verdict | None:
    """Measure the winner again on held-out prompts and fresh pairs; the next best if it fails."""
    known = run.confirmations()
    for trial in run.passed()[:CONFIRMATIONS]:
        id = trial.proposal.candidate
        if id not in known:
            listen.stage("confirm", id[:12])
            run.confirmed(judge.confirm(run.journal.get_candidate(id)))
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


def _pairs(runs: list[Timed]) -> list[Pair]:
    return [run.pair for run in runs]


def _as_good(live: Version, winner: Version) -> bool:
    """Whether a winner is not clearly faster than what is live for the very same model and machine."""
    same = live.fingerprint == winner.fingerprint
    return same and winner.confirmed.overall.low <= live.confirmed.overall.ratio


def _sample(runs: list[Timed]) -> list[Batch]:
    """Return a few of the timed batches."""
    return [run.batch for run in runs[:: max(1, len(runs) // 5)]][:5]


def _step_ms(runs: list[Timed]) -> float:
    """Return the candidate's fastest decode step, in ms; infinity when none was timed."""
    steps = [run.phases[Phase.DECODE][1] / run.batch.steps for run in runs if run.batch.steps]
    return min(steps, default=math.inf) / 1e6


def _one_call(name: str) -> Workload:
    """The workload of a module that is no language model: its own sampler's inputs."""
    call = Cluster(0, isl=1, osl=1, weight=1.0, isl_range=(1, 1), osl_range=(1, 1))
    return Workload(name, "module-1", 0, (call,))
