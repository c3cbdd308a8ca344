"""What one turn of the loop works with: engine, workload, prompts, exams, floors."""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from strop.config import Deployment
from strop.core import (
    Candidate,
    Cluster,
    Guards,
    Interval,
    Measurement,
    Pair,
    Phase,
    Target,
    Tier,
    Workload,
)
from strop.engine.client import ProcessEngine
from strop.engine.contract import Batch, Description, Kind, Role
from strop.gate import admit, speed
from strop.gate.exam import Exam
from strop.journal import Journal
from strop.measure.step import Bench, Timed
from strop.run import Run, Started
from strop.workload import Prompts

__all__ = ["Turn"]

_SHORT = {
    Tier.FAST: (((48,), 6), ((9, 31), 3)),
    Tier.SLOW: (*((((96,), 12),) * 6), ((17, 64, 33), 6), ((1,), 4)),
}
"""Exams of the search: (prompt lengths of a batch, forced decode steps)."""
_SLACK = {Tier.FAST: 2.0, Tier.SLOW: 1.25}
"""Of the search's exams; the final one has none."""
_WINDOW = 224
"""The final exam reads text in windows of so many tokens, the last seventh by decode steps."""


@dataclass(slots=True)
class Turn:
    """Holds; does not decide. `loop` fills it stage by stage."""

    deployment: Deployment
    engine: ProcessEngine
    workload: Workload
    prompts: Prompts | None
    left_out: int = 0
    bandwidth: float = math.inf
    floor_ms: dict[Tier, float] = field(default_factory=dict)
    targets: tuple[Target, ...] = ()
    exams: dict[tuple[Tier, bool], Exam] = field(default_factory=dict)
    seed: int = field(default_factory=lambda: secrets.randbits(60))
    """Of the exams' questions; new in every process, never written down."""

    @property
    def description(self) -> Description:
        """What the engine holds."""
        return self.engine.describe()

    @property
    def jail(self) -> tuple[str, ...]:
        """Isolation layers that hold around candidates."""
        return self.engine.jail

    def open_run(self, journal: Journal) -> Run:
        """Start a run, or go on with the unfinished one."""
        d = self.description
        return Run.of(
            journal,
            Started(
                deployment=self.deployment,
                workload=self.workload,
                left_out=self.left_out,
                fingerprint=d.fingerprint,
                jail=self.jail,
                targets=self.targets,
                bandwidth=self.bandwidth,
                layers=(d.fast_layers, d.layers),
            ),
        )

    def budget_s(self, search: str) -> float:
        """Seconds that a search may spend."""
        settings = self.deployment.search
        return (settings.flag_budget_s or settings.budget_s) if search == "flags" else settings.budget_s

    def out_of_trials(self, run: Run, search: str) -> bool:
        """Whether the deployment's cap on candidates is reached."""
        cap = self.deployment.search.max_trials
        return bool(cap) and len(run.trials(search)) >= cap

    def tier_workload(self, tier: Tier) -> Workload:
        """Return what a tier measures: the slow one all clusters, the fast one the heaviest."""
        if tier is Tier.SLOW or len(self.workload.clusters) == 1:
            return self.workload
        top = max(self.workload.clusters, key=lambda c: c.weight * (c.isl + 10 * c.osl))
        w = self.workload
        return Workload(w.name, w.version, w.requests, (_reweighted(top),), w.tokens)

    def draw(self, held_out: bool) -> Callable[[Cluster, int], Batch]:
        """Return how a cluster's traffic is drawn: real lengths, real text."""

        def draw(cluster: Cluster, seed: int) -> Batch:
            if self.description.kind is Kind.MODULE:
                return self.engine.sample(seed)
            low, high = cluster.isl_range if cluster.isl_range[1] else (cluster.isl, cluster.isl)
            isl = round(math.exp(random.Random(seed).uniform(math.log(low), math.log(high))))
            room = self.description.max_context - self.deployment.policy.decode_steps - 1
            assert self.prompts is not None
            isl = max(1, min(isl, room))
            return Batch(prompts=self.prompts.draw(isl, cluster.concurrency, seed, held_out))

        return draw

    def baseline_ms(self, cluster: Cluster) -> dict[Phase, float]:
        """Time the baseline on one batch of a cluster, after one untimed: ms by phase and step."""
        batch = self.draw(False)(cluster, self.seed)
        steps = self.deployment.policy.decode_steps if batch.prompts else 0
        batch = Batch(prompts=batch.prompts, inputs=batch.inputs, steps=steps)
        self.engine.measure(batch, Role.BASELINE)
        timing = self.engine.measure(batch, Role.BASELINE)
        if not steps:
            return {Phase.CALL: timing.prefill_ns / 1e6}
        return {
            Phase.PREFILL: timing.prefill_ns / 1e6,
            Phase.DECODE: timing.decode_ns / steps / 1e6,
        }

    def exam(self, tier: Tier, candidate: Candidate) -> Exam:
        """Return the search's exam for a tier; its answers are kept for the whole run."""
        same = admit.precision(candidate) == "same"
        if (tier, same) not in self.exams:
            kept = self.exams.get((tier, not same))
            batches = kept.batches if kept else self._questions(tier)
            known = kept.known if kept else {}
            policy = self.deployment.policy.numerics
            self.exams[tier, same] = Exam(self.engine, tier, batches, True, policy, same, _SLACK[tier], known)
        return self.exams[tier, same]

    def final_exam(self, candidate: Candidate) -> Exam:
        """Return the exam of a winner: held-out text, as many positions as the policy demands."""
        policy = self.deployment.policy
        same = admit.precision(candidate) == "same"
        batches = self._final_questions(policy.positions)
        return Exam(self.engine, Tier.SLOW, batches, False, policy.numerics, same)

    def final_rounds(self) -> int:
        """Rounds of pairs, one pair a cluster, behind a confirmed measurement."""
        return max(6, round(self.deployment.policy.pairs_final / len(self.workload.clusters)))

    def guards(self) -> Guards:
        """Return where a confirmed version may run: what the judge has seen, no more."""
        d = self.description
        device = self.deployment.engine.device
        if d.kind is Kind.MODULE:
            shapes = tuple(array.shape for array in self.engine.sample(0).inputs)
            return Guards(device, d.fingerprint.dtype, 0, 0, shapes)
        batch = max(3, *(c.concurrency for c in self.workload.clusters))
        return Guards(device, d.fingerprint.dtype, batch, self._longest())

    def measurement(
        self, tier: Tier, decision: speed.SpeedDecision, bench: Bench, runs: list[Timed]
    ) -> Measurement:
        """Write down what the pairs of a tier say."""
        return Measurement(
            tier=tier,
            workload_version=self.workload.version,
            tokens=self.workload.tokens,
            overall=decision.overall,
            clusters=decision.clusters,
            e_value=decision.e_value,
            swap_ms=sorted(bench.swap_ms)[len(bench.swap_ms) // 2],
            phases=_phase_intervals(runs),
        )

    def revive(self) -> None:
        """Start a dead engine again and forget answers that came from the old one."""
        self.engine.revive()

    def _longest(self) -> int:
        """Longest prompt and output that the final exam reads."""
        top = max(c.isl_range[1] + c.osl_range[1] for c in self.workload.clusters)
        top = max(top, *(c.isl + c.osl for c in self.workload.clusters))
        return min(self.description.max_context, top)

    def _questions(self, tier: Tier) -> list[Batch]:
        if self.description.kind is Kind.MODULE:
            return [self.engine.sample(self.seed + i) for i in range(3)]
        rng = random.Random(f"{self.seed} {tier.value}")
        return [self._text_batch(lengths, forced, rng, False) for lengths, forced in _SHORT[tier]]

    def _final_questions(self, positions: int) -> list[Batch]:
        if self.description.kind is Kind.MODULE:
            return [self.engine.sample(self.seed + 1000 + i) for i in range(8)]
        rng, longest = random.Random(f"{self.seed} final"), self._longest()
        window = min(_WINDOW, longest)
        count = max(1, (positions - longest) // window)
        # Even a short one has a prompt: a request of two tokens is one of each.
        split = [(size - max(1, size // 7), max(1, size // 7)) for size in (longest, *[window] * count)]
        return [self._text_batch((prompt,), forced, rng, True) for prompt, forced in split]

    def _text_batch(self, lengths: tuple[int, ...], forced: int, rng: random.Random, held_out: bool) -> Batch:
        """Cut windows of text; the last `forced` tokens of each are fed by decode steps."""
        assert self.prompts is not None
        texts = [
            self.prompts.draw(length + forced, 1, rng.getrandbits(60), held_out)[0] for length in lengths
        ]
        return Batch(
            prompts=tuple(text[:-forced] for text in texts),
            forced=tuple(text[-forced:] for text in texts),
        )


def _reweighted(cluster: Cluster) -> Cluster:
    return Cluster(
        cluster.id, cluster.isl, cluster.osl, 1.0, cluster.concurrency, cluster.cached_prefix,
        cluster.isl_range, cluster.osl_range,
    )  # fmt: skip


def _phase_intervals(runs: list[Timed]) -> dict[Phase, Interval]:
    found: dict[Phase, Interval] = {}
    for phase in runs[0].phases:
        sides = [run.phases[phase] for run in runs]
        pairs = [Pair(0, b, c, True) for b, c in sides]
        found[phase] = speed.interval(pairs)
    return found
