"""The order of pairs: which cluster, and which side first. Randomised, and balanced.

"A then B" in a fixed order takes drift for gain; see docs/measuring.md.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from strop.core import Workload

__all__ = ["Slot", "rounds"]


@dataclass(frozen=True, slots=True)
class Slot:
    """One pair to be timed."""

    cluster: int
    baseline_first: bool
    seed: int
    """Of the batch's prompts."""


def rounds(workload: Workload, count: int, rng: random.Random) -> Iterator[list[Slot]]:
    """Yield rounds of one pair a cluster, clusters shuffled.

    In each two rounds a cluster has either side first once, in random order.
    """
    ids = [cluster.id for cluster in workload.clusters]
    first: dict[int, bool] = {}
    for number in range(count):
        if number % 2 == 0:
            first = {id: rng.random() < 0.5 for id in ids}
        else:
            first = {id: not side for id, side in first.items()}
        order = rng.sample(ids, len(ids))
        yield [Slot(id, first[id], rng.getrandbits(60)) for id in order]
