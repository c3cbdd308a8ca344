"""What one turn of the loop works with: engine, workload, prompts, exams, floors."""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from strop.config import Deployment
from strop.core import (
    Candidate,
    Cluster,
    Guards,
    Interval,
    Measurement,
    NumericsPolicy,
    Pair,
    Phase,
    Target,
    Tier,
    Workload,
)
from strop.engine.contract import Batch, Description, Engine, Kind, Role, Timed
from strop.gate import speed
from strop.gate.calibrate import Moved, bounds, moved
from strop.gate.evidence import SpeedDecision
from strop.gate.exam import Exam
from strop.gate.numerics import POLICY
from strop.journal import Journal
from strop.measure.step import Bench, Draw
from strop.plan import hardware, target
from strop.run import Run, Started
from strop.workload import Prompts, Window

__all__ = ["Turn"]

_SHORT = {
    Tier.FAST: (((48,), 6), ((48,), 6), ((9, 31), 3)),
    Tier.SLOW: (*((((96,), 12),) * 6), ((17, 64, 33), 6), ((1,), 4)),
}
"""Exams of the search: (about how long the prompts of a batch are, forced decode steps). Some are
equally long, so that other values lie at the same address."""
_LEAST_FINAL = 12
"""With fewer rounds hardly any gain could reach the evidence that is asked for."""
_WINDOW = 224
"""The final exam reads text in windows of so many tokens, the last seventh by decode steps."""


@dataclass(slots=True)
class Turn:
    """Holds; does not decide. `loop` fills it stage by stage."""

    deployment: Deployment
    engine: Engine
    workload: Workload
    prompts: Prompts | None
    left_out: int = 0
    bandwidth: float = math.inf
    floor_ms: dict[Tier, float] = field(default_factory=dict)
    targets: tuple[Target, ...] = ()
    thresholds: dict[str, NumericsPolicy] = field(default_factory=dict)
    """Bounds of the numerics for the exams "fast", "slow" and "final"; see `gate.calibrate`."""
    exams: dict[Tier, Exam] = field(default_factory=dict)
    final_questions: list[Batch] = field(default_factory=list)
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
        run = Run.of(
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
                thresholds=self.thresholds,
            ),
        )
        self.bind(run.started.thresholds)  # a run that goes on keeps the bounds that it began with
        return run

    def recall(self, journal: Journal) -> bool:
        """Take the bounds that an earlier run calibrated on this very baseline, if one did."""
        run = Run.latest(journal, self.deployment.name)
        known = run.started if run else None
        if known is None or known.fingerprint != self.description.fingerprint:
            return False
        versions = {policy.version.partition("+")[0] for policy in known.thresholds.values()}
        if versions != {POLICY.version}:
            return False
        self.bind(known.thresholds)
        return True

    def calibrate(self, perturbations: Sequence[Candidate]) -> None:
        """Draw the bounds of the numerics from what perturbations do to this baseline.

        Raises:
            StropError: its outputs are too unstable to judge.
        """
        if self.exam(Tier.FAST).bit_exact or self.deployment.engine.kind != "torch":
            return
        seen: dict[Tier, list[Moved]] = {tier: [] for tier in Tier}
        for perturbation in perturbations:
            for tier in Tier:
                found = moved(self.engine, self.exam(tier), perturbation)
                seen[tier] += [found] if found else []
            self.engine.replace(Role.ACTIVE)
        slack = {"fast": (Tier.FAST, 2.0), "slow": (Tier.SLOW, 1.25), "final": (Tier.SLOW, 1.0)}
        self.bind({exam: bounds(POLICY, seen[tier], wide) for exam, (tier, wide) in slack.items()})

    def bind(self, thresholds: Mapping[str, NumericsPolicy]) -> None:
        """Take these bounds for every exam from now on."""
        self.thresholds = dict(thresholds)
        for tier, exam in self.exams.items():
            exam.thresholds = self.thresholds.get(tier.value, POLICY)

    def out_of_trials(self, run: Run, search: str) -> bool:
        """Whether the deployment's cap on candidates is reached."""
        cap = self.deployment.search.max_trials
        return bool(cap) and len(run.trials(search)) >= cap

    def tier_workload(self, tier: Tier) -> Workload:
        """Return what a tier measures: the slow one all clusters, the fast one the heaviest."""
        if tier is Tier.SLOW or len(self.workload.clusters) == 1:
            return self.workload
        top = max(self.workload.clusters, key=lambda c: c.weight * (c.isl + 10 * c.osl))
        return replace(self.workload, clusters=(replace(top, weight=1.0),))

    def draw(self, held_out: bool) -> Draw:
        """Return how a cluster's traffic is drawn: real lengths, real text."""

        def draw(cluster: Cluster, lengths: int, text: int) -> Batch:
            if self.description.kind is Kind.MODULE:
                return self.engine.sample(text)
            low, high = cluster.isl_range if cluster.isl_range[1] else (cluster.isl, cluster.isl)
            isl = round(math.exp(random.Random(lengths).uniform(math.log(low), math.log(high))))
            room = self.description.max_context - self.deployment.policy.decode_steps - 1
            assert self.prompts is not None
            isl = max(1, min(isl, room))
            return _split(list(self.prompts.draw(isl + 1, cluster.concurrency, text, held_out)), 1)

        return draw

    def measure_floors(self) -> None:
        """Measure the read bandwidth and keep the best that was ever seen; the floors follow from it.

        A lower figure than before is a neighbour's doing, and never the machine's.
        """
        known = 0.0 if math.isinf(self.bandwidth) else self.bandwidth
        d = self.description
        read = hardware.bandwidth(d.fingerprint.device, d.decode_bytes[Tier.SLOW])
        self.bandwidth = max(known, read)
        self.floor_ms = {tier: target.floor_ms(self.description, tier, self.bandwidth) for tier in Tier}

    def floor_again(self, tier: Tier) -> float:
        """Measure once more; return the floor of one step of a tier, in ms."""
        self.measure_floors()
        return self.floor_ms[tier]

    def baseline_ms(self, cluster: Cluster) -> dict[Phase, float]:
        """Time the baseline on one batch of a cluster, after one untimed: ms by phase and step."""
        batch = self.draw(False)(cluster, self.seed, self.seed)
        steps = self.deployment.policy.decode_steps if batch.prompts else 0
        batch = replace(batch, steps=steps)
        self.engine.measure(batch, Role.BASELINE)
        timing = self.engine.measure(batch, Role.BASELINE)
        if not steps:
            return {Phase.CALL: timing.prefill_ns / 1e6}
        return {
            Phase.PREFILL: timing.prefill_ns / 1e6,
            Phase.DECODE: timing.decode_ns / steps / 1e6,
        }

    def exam(self, tier: Tier) -> Exam:
        """Return the search's exam for a tier; its answers are kept for the whole run."""
        policy = self.deployment.policy
        if tier not in self.exams:
            self.exams[tier] = Exam(
                tier,
                self._questions(tier),
                bit_exact=policy.numerics == "bit_exact",
                thresholds=self.thresholds.get(tier.value, POLICY),
                repeats=max(2, policy.repeats // 4),
            )
        return self.exams[tier]

    def final_exam(self) -> Exam:
        """Return the exam of a winner: held-out text, as many positions as the policy demands."""
        policy = self.deployment.policy
        return Exam(
            Tier.SLOW,
            self.final_questions,
            keep=False,
            bit_exact=policy.numerics == "bit_exact",
            thresholds=self.thresholds.get("final", POLICY),
            repeats=policy.repeats,
        )

    def final_rounds(self) -> int:
        """Rounds of pairs, one pair a cluster, behind a confirmed measurement."""
        return max(_LEAST_FINAL, round(self.deployment.policy.pairs_final / len(self.workload.clusters)))

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
        self, tier: Tier, decision: SpeedDecision, bench: Bench, runs: list[Timed]
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

    def _longest(self) -> int:
        """Longest prompt and output that the final exam reads."""
        top = max(c.isl_range[1] + c.osl_range[1] for c in self.workload.clusters)
        top = max(top, *(c.isl + c.osl for c in self.workload.clusters))
        return min(self.description.max_context, top)

    def _questions(self, tier: Tier) -> list[Batch]:
        if self.description.kind is Kind.MODULE:
            return [self.engine.sample(self.seed + i) for i in range(3)]
        assert self.prompts is not None
        rng, draw = random.Random(f"{self.seed} {tier.value}"), self.prompts.draw
        # Stretched by a factor that nobody knows: a list of lengths would soon be known by heart.
        stretch = rng.uniform(0.8, 1.2)
        return [
            _split([draw(round(n * stretch) + forced, 1, rng.getrandbits(60))[0] for n in lengths], forced)
            for lengths, forced in _SHORT[tier]
        ]

    def draw_final_questions(self) -> None:
        """Draw the final exam: the longest request that the guards admit, then disjoint windows.

        Raises:
            StropError: the held-out text is too short for the policy's positions.
        """
        if self.prompts is None:
            self.final_questions = [self.engine.sample(self.seed + 1000 + i) for i in range(8)]
            return
        longest = self._longest()
        window = min(_WINDOW, longest)
        texts = list(self.prompts.draw(longest, 1, self.seed, True))
        rest = max(window, self.deployment.policy.positions - longest)
        texts += self.prompts.teacher_forced(rest, window, self.seed, True)
        # Even a short one has a prompt: a request of two tokens is one of each.
        self.final_questions = [_split([text], max(1, len(text) // 7)) for text in texts]


def _split(texts: list[Window], forced: int) -> Batch:
    """Make a batch of texts; the last `forced` tokens of each are fed by decode steps."""
    return Batch(
        prompts=tuple(text[:-forced] for text in texts),
        forced=tuple(text[-forced:] for text in texts),
    )


def _phase_intervals(runs: list[Timed]) -> dict[Phase, Interval]:
    found: dict[Phase, Interval] = {}
    for phase in runs[0].phases:
        sides = [run.phases[phase] for run in runs]
        pairs = [Pair(0, b, c, True) for b, c in sides]
        found[phase] = speed.interval(pairs)
    return found
