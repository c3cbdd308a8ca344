"""Timed steps: the baseline and a candidate do the same work moments apart, in one engine."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from strop.core import BASELINE_ID, Cluster, Pair, Phase, Tier
from strop.engine.contract import Array, Batch, Engine, Timing
from strop.measure.pairing import Slot

__all__ = ["Bench", "Draw", "Timed"]

Draw = Callable[[Cluster, int], Batch]
"""(cluster, seed) -> a batch of that cluster's traffic, without steps."""


@dataclass(frozen=True, slots=True)
class Timed:
    """One pair with what it produced, so that what was timed can be checked."""

    pair: Pair
    phases: dict[Phase, tuple[int, int]]
    """Phase to (baseline ns, candidate ns)."""
    batch: Batch
    baseline_tokens: Array
    """int64, shape (batch, 1 + steps); (0, 0) for a module."""
    candidate_tokens: Array
    candidate_outputs: tuple[Array, ...] = ()
    """A module's outputs of the timed call."""


@dataclass(slots=True)
class Bench:
    """Runs pairs of one candidate against the baseline on one tier."""

    engine: Engine
    tier: Tier
    draw: Draw
    steps: int
    """Chained decode steps in one exchange; 0 for a module."""
    swap_ms: list[float] = field(default_factory=list)

    def warm_up(self, version: str, clusters: tuple[Cluster, ...], rng: random.Random) -> None:
        """Run each side a random number of times untimed, so that a count tells a cheat nothing."""
        for cluster in clusters:
            for side in (BASELINE_ID, version):
                self.engine.activate(side, self.tier)
                for _ in range(rng.randint(1, 2)):
                    self.engine.measure(self._batch(cluster, rng.getrandbits(60)))

    def run(self, version: str, cluster: Cluster, slot: Slot) -> Timed:
        """Time one pair in the order that the slot says."""
        batch = self._batch(cluster, slot.seed)
        timings: dict[str, Timing] = {}
        sides = (BASELINE_ID, version) if slot.baseline_first else (version, BASELINE_ID)
        for side in sides:
            self.swap_ms.append(self.engine.activate(side, self.tier))
            timings[side] = self.engine.measure(batch)
        b, c = timings[BASELINE_ID], timings[version]
        pair = Pair(
            slot.cluster,
            _request_ns(b, cluster, batch),
            _request_ns(c, cluster, batch),
            slot.baseline_first,
        )
        return Timed(pair, _phases(b, c), batch, b.tokens, c.tokens, c.outputs)

    def _batch(self, cluster: Cluster, seed: int) -> Batch:
        batch = self.draw(cluster, seed)
        return replace(batch, steps=self.steps if batch.prompts else 0)


def _request_ns(timing: Timing, cluster: Cluster, batch: Batch) -> int:
    """Time of the cluster's whole request: its prefill and all of its decode steps."""
    if not batch.steps:
        return timing.prefill_ns
    return timing.prefill_ns + round(timing.decode_ns / batch.steps * max(0, cluster.osl - 1))


def _phases(b: Timing, c: Timing) -> dict[Phase, tuple[int, int]]:
    if not b.decode_ns:
        phase = Phase.PREFILL if b.tokens.size else Phase.CALL
        return {phase: (b.prefill_ns, c.prefill_ns)}
    return {
        Phase.PREFILL: (b.prefill_ns, c.prefill_ns),
        Phase.DECODE: (b.decode_ns, c.decode_ns),
    }
