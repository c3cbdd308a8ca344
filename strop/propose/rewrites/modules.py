"""Single modules replaced one for one; the framework's own forward pass calls them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from . import linear as linears
from . import mlp as mlps
from . import norm as norms


def build(
    model: nn.Module, ctx: Any, linear: str = "aten", norm: str = "keep", mlp: str = "keep"
) -> Mapping[str, Callable[..., Any]]:
    """Return new forwards by module path.

    `linear` replaces every `nn.Linear` that no replaced MLP holds, `norm` every RMSNorm, `mlp`
    every gated MLP as a whole ("keep" leaves them). Models of any kind with such modules will do.

    Raises:
        ValueError: nothing was asked for that this model has, or a choice is not known.
    """
    linears.check_allowed([linear], ctx.precision)
    forwards: dict[str, Callable[..., Any]] = {}
    for path, module in model.named_modules():
        if mlp != "keep" and hasattr(module, "gate_proj") and hasattr(module, "act_fn"):
            forwards[path] = torch.no_grad()(mlps.of(module, mlp, linear))
        elif norm != "keep" and hasattr(module, "variance_epsilon"):
            forwards[path] = torch.no_grad()(norms.of(module, norm))
        elif linear != "aten" and isinstance(module, nn.Linear) and parent(path) not in forwards:
            forwards[path] = torch.no_grad()(linears.of(module, linear))
    if not forwards:
        raise ValueError("these options replace no module of this model")
    return forwards


def parent(path: str) -> str:
    """Return the path of the module that holds this one."""
    return path.rpartition(".")[0]
