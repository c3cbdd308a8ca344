"""A linear layer of vLLM by another kernel: (rows, in) to (rows, out), in x's dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

Product = Callable[[torch.Tensor], torch.Tensor]

KINDS = ("native", "torch", "triton")
TILES = ("1x1024", "1x2048", "2x1024", "2x2048", "4x512", "4x1024")
"""Rows of the weight by columns of the reduction that the Triton kernel reads at a time."""
_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def make(module: Any, kind: str, tile: str = TILES[0]) -> Product:
    """Return the product of a vLLM linear layer.

    `native` calls the layer, whatever it holds. `torch` is F.linear on its weight. `triton` is a
    kernel for at most 16 rows; more rows take F.linear. A layer whose output its tensor-parallel
    peers share is called whatever the kind: the exchange is part of it.

    Raises:
        ValueError: an unknown kind or tile, or, unless native, a layer without a plain weight
            (quantised, or packed away as vLLM does on the CPU) or with a bias.
    """
    if kind not in KINDS:
        raise ValueError(f"product: one of {', '.join(KINDS)} is expected, got {kind!r}")
    rows, cols = _parsed(tile)
    if kind == "native" or _is_shared(module):
        return lambda x: _called(module, x)
    weight = plain_weight(module)
    if kind == "torch":
        return lambda x: F.linear(x, weight)
    from . import skinny

    def product(x: torch.Tensor) -> torch.Tensor:
        if not 0 < x.shape[0] <= skinny.MAX_ROWS:
            return F.linear(x, weight)
        return skinny.multiply(x, weight, rows, cols)

    return product


def make_gated(module: Any, act: Product, tile: str = TILES[0]) -> Product:
    """Return act(module(x)) as one kernel for at most 16 rows; act is silu(gate) * up.

    `module` is vLLM's merged gate_up_proj, gate's rows first. More rows take F.linear and `act`.

    Raises:
        ValueError: an unknown tile, or a layer that `make` would not take either.
    """
    rows, cols = _parsed(tile)
    weight = plain_weight(module)
    if _is_shared(module) or weight.shape[0] % 2:
        raise ValueError("product: gate_up is gathered or of odd size; it cannot be fused with silu")
    from . import skinny

    def product(x: torch.Tensor) -> torch.Tensor:
        if not 0 < x.shape[0] <= skinny.MAX_ROWS:
            return act(F.linear(x, weight))
        return skinny.multiply_gated(x, weight, rows, cols)

    return product


def plain_weight(module: Any) -> torch.Tensor:
    """Return the layer's weight, (out, in) as this rank holds it.

    Raises:
        ValueError: it is quantised, packed away, of another dtype, or there is a bias.
    """
    name, method = type(module).__name__, type(getattr(module, "quant_method", None)).__name__
    if method != "UnquantizedLinearMethod":
        raise ValueError(f"product: {name} is quantised ({method}); use kind 'native'")
    if getattr(module, "bias", None) is not None:
        raise ValueError(f"product: {name} has a bias; use kind 'native'")
    weight = getattr(module, "weight", None)
    shape = (module.output_size_per_partition, module.input_size_per_partition)
    if not isinstance(weight, torch.Tensor) or tuple(weight.shape) != shape:
        raise ValueError(f"product: {name} keeps no weight of shape {shape}; use kind 'native'")
    if weight.layout != torch.strided or weight.stride(1) != 1 or weight.dtype not in _DTYPES:
        raise ValueError(f"product: {name}'s weight is not plain rows of floats; use kind 'native'")
    return weight.data


def _called(module: Any, x: torch.Tensor) -> torch.Tensor:
    """Return the output of the layer itself, which comes with a bias that was not added."""
    y: torch.Tensor
    y, bias = module(x)
    if bias is not None:
        raise ValueError(f"product: {type(module).__name__} leaves its bias to the caller")
    return y


def _is_shared(module: Any) -> bool:
    """Whether ranks exchange the output: an all-reduce over rows, a gathering of columns."""
    exchanges = getattr(module, "reduce_results", False) or getattr(module, "gather_output", False)
    return bool(exchanges) and getattr(module, "tp_size", 1) > 1


def _parsed(tile: str) -> tuple[int, int]:
    if tile not in TILES:
        raise ValueError(f"product: a tile of {', '.join(TILES)} is expected, got {tile!r}")
    rows, cols = tile.split("x")
    return int(rows), int(cols)
