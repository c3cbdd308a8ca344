"""How a linear layer is executed: the same product, another kernel.

torch sends float32 `F.linear` on the CPU to MKL. Its oneDNN kernels are several times faster on
processors that MKL does not take for its own, and faster for skinny inputs almost everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Linear = Callable[[torch.Tensor], torch.Tensor]
"""(..., in_features) to (..., out_features), in the input's dtype."""

KINDS = ("aten", "onednn", "onednn2", "packed", "packed2")
LOW = ("bf16", "int8")
"""Kinds that change the precision, in `precision`; only for deployments that opted in."""
_ROWS = 16
"""Rows of the input that the blocked layout is chosen for; it serves any number."""


def make(weight: torch.Tensor, bias: torch.Tensor | None, kind: str) -> Linear:
    """Return `x @ weight.T + bias` by one of the KINDS.

    `aten` is what torch does. `onednn` reads the weight as it lies: no memory. `packed` copies it
    once into oneDNN's blocked layout: as much memory again as the weight takes; it pays for long
    reductions and at two rows and more. `onednn2` and `packed2` halve the reduction and add the
    halves (also copies), which takes about 0.7 of the rounding error: oneDNN sums along the
    whole reduction in one float32, MKL in several.

    Raises:
        ValueError: an unknown kind, or oneDNN is not there for this dtype and device.
    """
    if kind == "aten":
        return lambda x: F.linear(x, weight, bias)
    if kind in LOW:
        from . import precision

        return precision.make(weight, bias, kind)
    if kind not in KINDS:
        raise ValueError(f"linear: one of {', '.join(KINDS)} is expected, got {kind!r}")
    _check_onednn(weight)
    weight = weight.detach()
    pieces = weight.chunk(2, dim=1) if kind.endswith("2") else (weight,)
    if kind.startswith("packed"):
        reorder = torch.ops.mkldnn._reorder_linear_weight
        pieces = tuple(reorder(piece.contiguous(), _ROWS) for piece in pieces)
    if len(pieces) == 1:
        return _whole(pieces[0], bias)
    return _halves(pieces[0], pieces[1], bias, -(-weight.shape[1] // 2))


def _whole(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    product = torch.ops.mkldnn._linear_pointwise.default
    none: list[Any] = []
    return lambda x: product(x, weight, bias, "none", none, "")


def _halves(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None, cut: int) -> Linear:
    first = _whole(left if left.is_mkldnn else left.contiguous(), bias)
    right = right if right.is_mkldnn else right.contiguous()
    onto = torch.ops.mkldnn._linear_pointwise.binary

    def product(x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = onto(x[..., cut:], first(x[..., :cut]), right, None, "add")
        return y

    return product


def check_allowed(kinds: Sequence[str], precision: str) -> None:
    """Make sure that the deployment allows the precision of every kind.

    `precision` is the context's: "same", "any", or the one kind that was opted in to.

    Raises:
        ValueError: it does not.
    """
    for kind in kinds:
        if kind in LOW and precision not in ("any", kind):
            raise ValueError(f"{kind} changes the precision and ctx.precision is {precision!r}")


def of(module: nn.Linear, kind: str) -> Linear:
    """Return a linear layer's product; see `make`."""
    return make(module.weight, module.bias, kind)


def fused(modules: Sequence[nn.Linear], kind: str) -> Linear:
    """Return one product for several layers that read the same input, outputs side by side.

    Copies the weights: as much memory again as they take, once, packed or not.
    """
    weight = torch.cat([module.weight.detach() for module in modules])
    return make(weight, _joined_bias(modules), kind)


def _joined_bias(modules: Sequence[nn.Linear]) -> torch.Tensor | None:
    if all(module.bias is None for module in modules):
        return None
    zeros = [module.weight.new_zeros(module.out_features) for module in modules]
    pairs = zip(modules, zeros, strict=True)
    return torch.cat([zero if m.bias is None else m.bias.detach() for m, zero in pairs])


def _check_onednn(weight: torch.Tensor) -> None:
    if not torch.backends.mkldnn.is_available():
        raise ValueError("linear: this torch was built without oneDNN; use kind 'aten'")
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.bfloat16):
        what = f"{weight.dtype} on {weight.device}"
        raise ValueError(f"linear: oneDNN takes float32 and bfloat16 on the CPU, not {what}")
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        raise ValueError("linear: this torch has no fused oneDNN linear; use kind 'aten'")
