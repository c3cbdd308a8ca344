"""What the hardware can do at best: the numerator of every roofline."""

from __future__ import annotations

import math
import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

__all__ = ["GPUS", "bandwidth", "read_bandwidth"]

GPUS = {
    "H200": 4.8e12,
    "H100 NVL": 3.9e12,
    "H100 PCIe": 2.0e12,
    "H100": 3.35e12,
    "B200": 8.0e12,
    "A100-SXM4-80GB": 2.039e12,
    "A100-PCIE-40GB": 1.555e12,
    "L40S": 0.864e12,
    "MI300X": 5.3e12,
}
"""Peak memory bandwidth in bytes/s by a part of the device's name, the more special name first.
From the vendors' data sheets: no kernel reads faster, whatever else the machine does."""

_LEAST_BYTES, _MOST_BYTES = 1 << 20, 512 << 20


def bandwidth(device: str, working_set: int) -> float:
    """Return the bytes/s that a step on a device reads at most.

    A known GPU's peak; on an unknown one infinity, which makes no floor; on a CPU a measurement.
    """
    if found := next((peak for name, peak in GPUS.items() if name in device), 0.0):
        return found
    if "NVIDIA" in device or device.startswith("AMD Instinct"):
        return math.inf
    return read_bandwidth(working_set)


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
