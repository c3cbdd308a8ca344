"""THE LOOP: observe -> plan -> propose -> measure -> gate -> ship. The only file that knows the order."""

from __future__ import annotations

import hashlib
import hmac
import random
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from strop.config import Deployment
from strop.core import (
    Candidate,
    EngineGone,
    Fault,
    Inconclusive,
    Pair,
    Param,
    Proposal,
    Reason,
    Status,
    Tier,
    Trial,
    Verdict,
    Version,
)
from strop.engine.client import ProcessEngine
from strop.engine.contract import Kind, Role, Timed
from strop.engine.start import start
from strop.gate import speed
from strop.gate.case import Answer, Case
from strop.gate.order import CHECKS, Gate, When
from strop.gate.record import Record
from strop.journal import Journal
from strop.measure import pairing
from strop.measure.step import Bench
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
_LEAST_ROUNDS = 6
"""Fewer rounds carry no interval."""
_PROMISING = 0.97
"""A candidate goes on to the slow tier when its fast ratio is this share of the best one yet."""


class Searcher(Protocol):
    """Any agent: asked for candidates, told what became of them."""

    name: str
    trusted: bool
    """Whether it is strop's own, and proposes nothing but strop's own code."""

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
        trusted = {searcher.name for searcher in searchers if searcher.trusted}
        winner = confirm(run, judge, trusted, listen)
        outcome = ship(turn, run, winner, listen)
        run.finish(outcome)
        return outcome


def observe(deployment: Deployment, engine: ProcessEngine, listen: Listener) -> Turn:
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
    turn.bandwidth = hardware.read_bandwidth(turn.description.decode_bytes[Tier.SLOW])
    turn.floor_ms = {tier: target.floor_ms(turn.description, tier, turn.bandwidth) for tier in Tier}
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


@dataclass(slots=True)
class Judge:
    """Judges one candidate: cheapest check first, and the first no ends it."""

    turn: Turn
    listen: Listener
    best_fast: float = 0.0
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    """Lives only here; every seed follows from it and the candidate's hash."""
    gates: tuple[Gate, ...] = CHECKS
    """The list; only a test of the list itself ever passes another."""

    def __call__(self, candidate: Candidate, *, trusted: bool = False) -> Verdict:
        """Return the verdict. Never raises for anything the candidate does."""
        verdict = self.conclude(candidate, trusted, self._judge)
        self.learn(verdict)
        return verdict

    def confirm(self, candidate: Candidate, *, trusted: bool = False) -> Verdict:
        """Judge a winner again: held-out text, fresh pairs, every position the policy demands."""
        verdict = self.conclude(candidate, trusted, self._confirm)
        if verdict.reason is Reason.NOT_FASTER:
            return replace(verdict, reason=Reason.HELD_OUT_REGRESSION)
        return verdict

    def conclude(self, candidate: Candidate, trusted: bool, work: Callable[[Case, Record], None]) -> Verdict:
        """Do the work, turn however it ends into a verdict, and clean up."""
        started, record = time.monotonic(), Record(candidate.id)
        case = Case(
            engine=self.turn.engine,
            candidate=candidate,
            policy=self.turn.deployment.policy,
            jail=self.turn.jail,
            rng=self.rng(candidate, work.__name__),
            trusted=trusted or self.turn.deployment.policy.trust,
        )
        try:
            work(case, record)
            verdict = record.verdict(Status.PASSED)
        except Fault as fault:
            record.refuse(fault)
            verdict = record.verdict(Status.FAILED, fault.reason, fault.detail)
        except Inconclusive as unsure:
            verdict = record.verdict(Status.INCONCLUSIVE, None, str(unsure))
        except EngineGone as gone:
            detail = f"the engine died with it ({gone})"
            record.refuse(Fault(Reason.CRASHED, detail))
            verdict = record.verdict(Status.FAILED, Reason.CRASHED, detail)
        finally:
            self._clean_up()
        return replace(verdict, jail=case.jail, seconds=time.monotonic() - started)

    def _judge(self, case: Case, record: Record) -> None:
        policy = self.turn.deployment.policy
        self.check(When.FIRST, case, record)
        # Fast tier: the first K layers.
        fast = case.on(Tier.FAST, self.turn.exam(Tier.FAST))
        self._tier(fast, policy.pairs_fast, record)
        self._demand_promising(record)
        # Slow tier: all layers, the whole workload.
        slow = case.on(Tier.SLOW, self.turn.exam(Tier.SLOW))
        self._tier(slow, policy.pairs_slow, record)
        self.check(When.LAST, slow, record)

    def _confirm(self, case: Case, record: Record) -> None:
        # Alpha is shared by all who may try: docs/decisions/0005-alpha.md.
        case.policy = replace(case.policy, alpha=case.policy.alpha / CONFIRMATIONS)
        case.held_out = True
        case = case.on(Tier.SLOW, self.turn.final_exam())
        self.check(When.FIRST, case, record)
        self._tier(case, self.turn.final_rounds(), record)
        self.check(When.LAST, case, record)

    def _tier(self, case: Case, rounds: int, record: Record) -> None:
        """Build for a tier, sit its exam, race the baseline; every check of the tier in between."""
        self._load(case, record)
        record.now = "run"
        case.engine.activate(case.candidate.id, case.tier)
        for number, question in enumerate(case.exam.questions):
            record.now = "run"
            scored = case.engine.score(question, reread=True)
            case.answer = Answer(number, question, scored, *case.exam.answers(case.engine, number))
            self.check(When.ANSWERED, case, record)
            case.take()
        self.check(When.SAT, case, record)
        record.now = "run"
        self.race(case, rounds, record)
        self.check(When.TIMED, case, record)

    def check(self, when: When, case: Case, record: Record) -> None:
        """Ask every check of one moment, in the order of the list.

        Raises:
            Fault: of the first that says no.
            Inconclusive: of the first that cannot tell.
        """
        for gate in self.gates:
            if gate.when is when and case.tier in gate.tiers:
                record.now = gate.name
                measured = gate.demand(case)
                if measured is not None:
                    record.passed(gate.name, measured)

    def race(self, case: Case, rounds: int, record: Record) -> None:
        """Time interleaved pairs until the evidence is in.

        Raises:
            Fault: whatever the candidate does.
        """
        turn, version = self.turn, case.candidate.id
        workload = case.workload = turn.tier_workload(case.tier)
        bench = Bench(turn.engine, case.tier, turn.draw(case.held_out), case.policy.decode_steps)
        bench.warm_up(version, workload.clusters, case.rng)
        for count, slots in enumerate(pairing.rounds(workload, rounds, case.rng), 1):
            # One pair a round tells whether the baseline is as fast where no candidate ran.
            clean = case.rng.choice(slots) if case.tier is Tier.SLOW else None
            for slot in slots:
                cluster = workload.cluster(slot.cluster)
                case.runs.append(bench.run(version, cluster, slot, clean=slot is clean))
            self.listen.tier(case.tier, count, rounds)
            enough = not case.held_out and not speed.keep_going(_pairs(case.runs), workload, case.policy)
            if enough and count >= _LEAST_ROUNDS:
                break
        case.decision = speed.decide(_pairs(case.runs), workload, case.policy)
        record.measured[case.tier] = turn.measurement(case.tier, case.decision, bench, case.runs)

    def rng(self, candidate: Candidate, work: str) -> random.Random:
        """Seeds that no candidate can foresee: HMAC of its frozen hash under the judge's secret."""
        message = f"{candidate.id} {work}".encode()
        return random.Random(hmac.new(self.secret, message, hashlib.sha256).digest())

    def learn(self, verdict: Verdict) -> None:
        """Keep the best fast ratio of a candidate that was not refused."""
        if verdict.fast and verdict.status is not Status.FAILED:
            self.best_fast = max(self.best_fast, verdict.fast.overall.ratio)

    def _load(self, case: Case, record: Record) -> None:
        record.now = "build"
        loaded = case.engine.load(case.candidate, case.tier)
        case.floor_ms = self.turn.floor_ms[case.tier]
        text = f"built in {loaded.build_ms:.0f} ms, {loaded.extra_bytes / 1e6:.0f} MB more memory"
        record.built(text)

    def _demand_promising(self, record: Record) -> None:
        fast = record.measured[Tier.FAST]
        if fast.overall.ratio < _PROMISING * self.best_fast:
            raise Inconclusive(
                f"{fast.overall.ratio:.2f}x on the fast tier, the best is {self.best_fast:.2f}x: "
                "not measured on the slow tier"
            )

    def _clean_up(self) -> None:
        """Give the next candidate a fresh worker; a dead owner is started again.

        A fork costs milliseconds, and what a candidate patched in its process goes with it.
        """
        try:
            self.turn.engine.replace(Role.ACTIVE)
        except EngineGone:
            self.turn.engine.revive()


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


def _pairs(runs: list[Timed]) -> list[Pair]:
    return [run.pair for run in runs]


def _as_good(live: Version, winner: Version) -> bool:
    """Whether a winner is not clearly faster than what is live for the very same model and machine."""
    same = live.fingerprint == winner.fingerprint
    return same and winner.confirmed.overall.low <= live.confirmed.overall.ratio
