"""RMSNorm (Zhang and Sennrich 2019, arXiv:1910.07467): x / rms(x) * weight over the last axis."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

Norm = Callable[[torch.Tensor], torch.Tensor]

KINDS = ("hand", "fused")


def of(module: nn.Module, kind: str) -> Norm:
    """Return the norm of a transformers RMSNorm module.

    `hand` takes the mean of squares in float32 as transformers does; `fused` is one torch call.

    Raises:
        ValueError: an unknown kind, or a module without `weight` and `variance_epsilon`.
    """
    weight, eps = getattr(module, "weight", None), getattr(module, "variance_epsilon", None)
    if weight is None or eps is None:
        raise ValueError(f"norm: {type(module).__name__} is not an RMSNorm of the Llama family")
    if kind == "fused":
        shape = tuple(weight.shape)
        return lambda x: F.rms_norm(x, shape, weight, eps)
    if kind != "hand":
        raise ValueError(f"norm: one of {', '.join(KINDS)} is expected, got {kind!r}")

    def hand(x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        scale = wide.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
        scaled: torch.Tensor = weight * (wide * scale).to(x.dtype)
        return scaled

    return hand
