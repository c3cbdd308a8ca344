"""THE JUDGE: one candidate, tier by tier, through the checks of `gate.order`."""

from __future__ import annotations

import functools
import hashlib
import hmac
import random
import secrets
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from strop.core import Candidate, EngineGone, Fault, Inconclusive, Pair, Reason, Status, Tier, Verdict
from strop.engine.contract import Role, Timed
from strop.gate import speed
from strop.gate.case import Answer, Case
from strop.gate.order import CHECKS, Gate, When
from strop.gate.record import Record
from strop.listener import Listener
from strop.measure import pairing
from strop.measure.step import Bench
from strop.turn import Turn

__all__ = ["CONFIRMATIONS", "Judge"]

CONFIRMATIONS = 3
"""So many of the best candidates may try to confirm their gain on fresh pairs, and share alpha."""
_LEAST_ROUNDS = 6
"""Fewer rounds carry no interval."""
_PATIENCE = {Tier.FAST: 1 / 3, Tier.SLOW: 1}
_FINAL = 3
"""Patience of the last judgement: its alpha is a third, and few get there."""
_PROMISING = 0.97
"""A candidate goes on to the slow tier when its fast ratio is this share of the best one yet."""


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
        started, record = time.monotonic(), Record(candidate.id, self.listen.checked)
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
            record.refuse(fault.detail)
            verdict = record.verdict(Status.FAILED, fault.reason, fault.detail)
        except Inconclusive as unsure:
            record.refuse(str(unsure))
            verdict = record.verdict(Status.INCONCLUSIVE, None, str(unsure))
        except EngineGone as gone:
            detail = f"the engine died with it ({gone})"
            record.refuse(detail)
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
        alpha = case.policy.alpha / CONFIRMATIONS
        case.policy = replace(case.policy, alpha=alpha, worth=case.policy.delta)
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
        """Time interleaved pairs until the evidence is in, or patience is at its end.

        Args:
            case: gets the runs, and what they say.
            rounds: affordable in any case; the final judgement makes no fewer.
            record: gets the measurement.

        Raises:
            Fault: whatever the candidate does.
        """
        turn, version, policy = self.turn, case.candidate.id, case.policy
        workload = case.workload = turn.tier_workload(case.tier)
        bench = Bench(turn.engine, case.tier, turn.draw(case.held_out), policy.decode_steps)
        bench.warm_up(version, workload.clusters, case.rng)
        patience_s = policy.patience_s * (_FINAL if case.held_out else _PATIENCE[case.tier])
        look, until = rounds if case.held_out else _LEAST_ROUNDS, time.monotonic() + patience_s

        def race(slots: list[pairing.Slot], clean: Collection[pairing.Slot]) -> list[Timed]:
            clusters = [workload.cluster(slot.cluster) for slot in slots]
            pairs = zip(clusters, slots, strict=True)
            return [bench.run(version, cluster, slot, clean=slot in clean) for cluster, slot in pairs]

        def again(count: int) -> list[Timed]:
            turn.engine.replace(Role.BASELINE)
            bench.used_clean = False
            more = pairing.rounds(workload, count, case.rng)
            return [run for slots in more for run in race(slots, slots)]

        case.time_again = again
        most = max(rounds, policy.rounds_most)
        for count, slots in enumerate(pairing.rounds(workload, most, case.rng), 1):
            # One pair a round tells whether the baseline is as fast where no candidate ran.
            case.runs += race(slots, [case.rng.choice(slots)] if case.tier is Tier.SLOW else [])
            self.listen.tier(case.tier, count, max(count, rounds))
            if count >= rounds and time.monotonic() > until:
                break
            if count >= look:
                if not speed.keep_going(_pairs(case.runs), workload, policy):
                    break
                look = count + max(1, count // 20)  # a look goes over every pair so far
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
        case.floor_again = functools.partial(self.turn.floor_again, case.tier)
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


def _pairs(runs: list[Timed]) -> list[Pair]:
    return [run.pair for run in runs]
