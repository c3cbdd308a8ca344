"""What the hardware can do at best: the numerator of every roofline."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

__all__ = ["read_bandwidth"]

_LEAST_BYTES, _MOST_BYTES = 1 << 20, 512 << 20


def read_bandwidth(working_set: int, seconds: float = 1.0) -> float:
    """Measure the CPU's read bandwidth in bytes/s: the best of many passes over a working set.

    The best, not the mean, and over as many bytes as a step reads, which may fit into a cache: a
    floor must err to the side of being too fast, so that no honest candidate is called impossible.
    """
    threads = os.cpu_count() or 1
    size = min(max(working_set, _LEAST_BYTES), _MOST_BYTES) // threads
    chunks = [np.ones(size // 8, dtype=np.int64) for _ in range(threads)]
    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            started = time.perf_counter()
            list(pool.map(np.bitwise_or.reduce, chunks))
            best = max(best, len(chunks) * size / (time.perf_counter() - started))
    return best
