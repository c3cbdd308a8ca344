"""vLLM's RMSNorm, with the residual's addition where one is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Norm = Callable[..., Any]
"""norm(x) is y; norm(x, residual) is (y, x + residual). All (rows, hidden), in x's dtype."""

KINDS = ("native", "ops", "triton")


def of(module: Any, kind: str) -> Norm:
    """Return the norm of a vLLM `RMSNorm` module.

    `native` calls the module. Under a bypassed torch.compile its dispatch may still take the
    steps that were meant for the compiler to fuse, one launch each. `ops` calls vLLM's compiled
    kernels directly; with a residual they overwrite both x and the residual, as vLLM lets them.
    `triton` is one kernel that writes to no input.

    Raises:
        ValueError: an unknown kind, another sort of norm, or this vLLM has no such kernels.
    """
    if kind not in KINDS:
        raise ValueError(f"norm: one of {', '.join(KINDS)} is expected, got {kind!r}")
    if kind == "native":
        return lambda *tensors: module(*tensors)
    _check(module)
    weight, eps = module.weight.data, float(module.variance_epsilon)
    return _ops(weight, eps) if kind == "ops" else _triton(weight, eps)


def _check(module: Any) -> None:
    """Make sure that it is the plain norm: others scale by 1 + weight or over part of a row."""
    weight, name = getattr(module, "weight", None), type(module).__name__
    if name != "RMSNorm" or not hasattr(module, "variance_epsilon"):
        raise ValueError(f"norm: {name} is not vLLM's RMSNorm; use kind 'native'")
    if not isinstance(weight, torch.Tensor) or weight.dim() != 1 or not weight.numel():
        raise ValueError("norm: this RMSNorm has no weight of one dimension; use kind 'native'")
    if getattr(module, "variance_size_override", None) or not getattr(module, "has_weight", True):
        raise ValueError("norm: this RMSNorm is over part of a row or unweighted; use kind 'native'")


def _ops(weight: torch.Tensor, eps: float) -> Norm:
    library = torch.ops._C
    if not (hasattr(library, "rms_norm") and hasattr(library, "fused_add_rms_norm")):
        raise ValueError("norm: this vLLM has no compiled RMSNorm; use kind 'native' or 'triton'")
    plain, add = library.rms_norm, library.fused_add_rms_norm

    def norm(x: torch.Tensor, residual: torch.Tensor | None = None) -> Any:
        if x.dtype != weight.dtype:
            raise ValueError(f"norm: the kernels need one dtype, not {x.dtype} and {weight.dtype}")
        if residual is None:
            y = torch.empty_like(x)
            plain(y, x, weight, eps)
            return y
        add(x, residual, weight, eps)
        return x, residual

    return norm


def _triton(weight: torch.Tensor, eps: float) -> Norm:
    from . import fused_norm

    def norm(x: torch.Tensor, residual: torch.Tensor | None = None) -> Any:
        y, total = fused_norm.run(x, residual, weight, eps)
        return y if residual is None else (y, total)

    return norm
