"""Timed steps: the baseline and a candidate do the same work moments apart, in one engine."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from strop.core import BASELINE_ID, Cluster, Pair, Phase, Tier
from strop.engine.contract import Batch, Engine, Role, Timed, Timing
from strop.measure.pairing import Slot

__all__ = ["Bench", "Draw"]

Draw = Callable[[Cluster, int, int], Batch]
"""(cluster, seed of the lengths, seed of the text) -> a batch of that cluster's traffic.

The batch has one forced token a request: what its first decode step is fed.
"""


@dataclass(slots=True)
class Bench:
    """Runs pairs of one candidate against the baseline on one tier."""

    engine: Engine
    tier: Tier
    draw: Draw
    steps: int
    """Chained decode steps in one exchange; 0 for a module."""
    swap_ms: list[float] = field(default_factory=list)
    used_clean: bool = False
    """Whether the clean worker has run once."""

    def warm_up(self, version: str, clusters: tuple[Cluster, ...], rng: random.Random) -> None:
        """Run each side a random number of times untimed, so that a count tells a cheat nothing."""
        for cluster in clusters:
            for side in (BASELINE_ID, version):
                self.engine.activate(side, self.tier)
                for _ in range(rng.randint(1, 2)):
                    self.engine.measure(self._batch(cluster, rng.getrandbits(60), rng.getrandbits(60)))

    def run(self, version: str, cluster: Cluster, slot: Slot, *, clean: bool = False) -> Timed:
        """Time one pair in the order that the slot says.

        The two sides get texts of the same lengths, but not the same text: they share a process,
        and whoever comes second could give back what the first one computed.

        Args:
            version: of the candidate.
            cluster: whose traffic it is.
            slot: order and seed.
            clean: also run the baseline's batch in the worker where no candidate ever ran.
        """
        rng, timings, batches = random.Random(slot.seed), {}, {}
        lengths = rng.getrandbits(60)
        for side in (BASELINE_ID, version):
            batches[side] = self._batch(cluster, lengths, rng.getrandbits(60))
        sides = (BASELINE_ID, version) if slot.baseline_first else (version, BASELINE_ID)
        for side in sides:
            self.swap_ms.append(self.engine.activate(side, self.tier))
            timings[side] = self.engine.measure(batches[side])
        b, c = timings[BASELINE_ID], timings[version]
        batch = batches[version]
        times = [_request_ns(timing, cluster, batch) for timing in (b, c)]
        return Timed(
            pair=Pair(slot.cluster, times[0], times[1], slot.baseline_first),
            phases=_phases(b, c),
            batch=batch,
            timing=c,
            beside_ns=b.total_ns if clean else 0,
            clean_ns=self._elsewhere(batches[BASELINE_ID]) if clean else 0,
        )

    def _elsewhere(self, batch: Batch) -> int:
        if not self.used_clean:
            self.engine.measure(batch, Role.BASELINE)  # its first run is slow
            self.used_clean = True
        return self.engine.measure(batch, Role.BASELINE).total_ns

    def _batch(self, cluster: Cluster, lengths: int, text: int) -> Batch:
        batch = self.draw(cluster, lengths, text)
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
