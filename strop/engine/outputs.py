"""What a worker sent back, taken for what it is: bytes from untrusted code."""

from __future__ import annotations

from typing import Any

import numpy as np

from strop.core import Fault, Reason, StropError
from strop.engine import wire
from strop.engine.contract import Array

__all__ = ["read", "tokens"]


def read(reply: Any) -> list[Array]:
    """Return the arrays of a reply.

    Raises:
        Fault: shape, when an array is not what it says; crashed, when there are none.
    """
    if not isinstance(reply, wire.Arrays):
        raise Fault(Reason.CRASHED, "the worker answered with something else")
    try:
        return [wire.unpack(array) for array in reply.arrays]
    except StropError as error:
        raise Fault(Reason.SHAPE, str(error)) from None


def tokens(arrays: list[Array], shape: tuple[int, int], vocab: int) -> Array:
    """Return the tokens, int64 of `shape` (batch, steps), each in [0, vocab).

    Raises:
        Fault: shape or dtype.
    """
    if len(arrays) != 1 or arrays[0].shape != shape:
        raise Fault(Reason.SHAPE, f"tokens of shape {[a.shape for a in arrays]}, not {shape}")
    found = arrays[0]
    if found.dtype != np.int64:
        raise Fault(Reason.DTYPE, f"tokens of dtype {found.dtype}")
    if found.min() < 0 or found.max() >= vocab:
        raise Fault(Reason.SHAPE, "a token outside the vocabulary")
    return found
