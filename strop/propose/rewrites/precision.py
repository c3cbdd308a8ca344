"""Products with smaller weights: bfloat16, or int8 with one scale a row. Opt-in only."""

from __future__ import annotations

from collections.abc import Callable

import torch

KINDS = ("bf16", "int8")


def make(
    weight: torch.Tensor, bias: torch.Tensor | None, kind: str
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return `x @ weight.T + bias` for float32 x, from a copy in `kind`; the result is float32.

    `bf16` rounds weight and input to 8 bits of mantissa and sums in float32. `int8` scales each
    row of the weight and, at every call, the whole input (dynamic quantisation).
    """
    return _bf16(weight, bias) if kind == "bf16" else _int8(weight, bias)


def _bf16(weight: torch.Tensor, bias: torch.Tensor | None) -> Callable[[torch.Tensor], torch.Tensor]:
    small = torch.ops.mkldnn._reorder_linear_weight(weight.detach().to(torch.bfloat16), 16)
    small_bias = None if bias is None else bias.detach().to(torch.bfloat16)
    product = torch.ops.mkldnn._linear_pointwise.default
    return lambda x: product(x.bfloat16(), small, small_bias, "none", [], "").to(x.dtype)


def _int8(weight: torch.Tensor, bias: torch.Tensor | None) -> Callable[[torch.Tensor], torch.Tensor]:
    weight = weight.detach().float()
    scales = weight.abs().amax(1).clamp_min(torch.finfo(torch.float32).tiny) / 127
    zeros = torch.zeros(len(scales), dtype=torch.int64)
    small = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
    packed = torch.ops.quantized.linear_prepack(small, bias)
    product = torch.ops.quantized.linear_dynamic
    return lambda x: product(x, packed, False)
