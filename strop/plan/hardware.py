"""What the hardware can do at best: the numerator of every roofline."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

__all__ = ["read_bandwidth"]

_CHUNK_BYTES = 64 << 20


def read_bandwidth(seconds: float = 1.0) -> float:
    """Measure the CPU's read bandwidth in bytes/s: the best of many passes over cold memory.

    The best, not the mean: a floor must err to the side of being too fast, so that no honest
    candidate is called impossible.
    """
    threads = os.cpu_count() or 1
    chunks = [np.ones(_CHUNK_BYTES // 8, dtype=np.int64) for _ in range(4 * threads)]
    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            started = time.perf_counter()
            list(pool.map(np.bitwise_or.reduce, chunks))
            best = max(best, len(chunks) * _CHUNK_BYTES / (time.perf_counter() - started))
    return best
