"""The gated MLP, down(act(gate(x)) * up(x)); see Shazeer 2020, arXiv:2002.05202."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import linear

MLP = Callable[[torch.Tensor], torch.Tensor]

KINDS = ("separate", "fused")


def of(module: Any, kind: str, linear_kind: str) -> MLP:
    """Return the MLP of a transformers `LlamaMLP`.

    `fused` runs gate and up as one product (their weights are copied), `separate` as two.

    Raises:
        ValueError: an unknown kind, or a module without gate, up and down projections.
    """
    if not all(hasattr(module, name) for name in ("gate_proj", "up_proj", "down_proj", "act_fn")):
        raise ValueError(f"mlp: {type(module).__name__} is not a gated MLP of the Llama family")
    act, down = module.act_fn, linear.of(module.down_proj, linear_kind)
    if kind == "fused":
        width = module.gate_proj.out_features
        both = linear.fused([module.gate_proj, module.up_proj], linear_kind)

        def fused(x: torch.Tensor) -> torch.Tensor:
            y = both(x)
            return down(act(y[..., :width]).mul_(y[..., width:]))

        return fused
    if kind != "separate":
        raise ValueError(f"mlp: one of {', '.join(KINDS)} is expected, got {kind!r}")
    gate = linear.of(module.gate_proj, linear_kind)
    up = linear.of(module.up_proj, linear_kind)
    return lambda x: down(act(gate(x)).mul_(up(x)))
