"""Garbage in memory that nobody has written yet: finds code that lives on zero pages or old values."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["garbage_in_new_memory"]

_M_PERTURB = -6
_BYTE = 0x7F
"""0x7F7F7F7F is 3.4e38 as float32 and as bfloat16, and far out of range as an index."""


@contextmanager
def garbage_in_new_memory(wanted: bool) -> Iterator[None]:
    """Have malloc fill what it hands out, where glibc is the allocator; else do nothing."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if not wanted or mallopt is None:
        yield
        return
    # glibc fills new memory with the complement of the byte, and freed memory with the byte.
    mallopt(_M_PERTURB, _BYTE ^ 0xFF)
    try:
        yield
    finally:
        mallopt(_M_PERTURB, 0)
