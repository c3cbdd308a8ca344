"""No rewrite: the framework's own settings, as a user would set them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import StaticCache


def build(
    model: nn.Module,
    ctx: Any,
    attention: str = "sdpa",
    compile: str = "off",
    cache: str = "dynamic",
) -> Mapping[str, Callable[..., Any]]:
    """Return {"": forward}: the model's own forward with other settings.

    The settings live in a twin that shares every tensor, so the model itself keeps its own.
    `compile` is "off" or a mode of torch.compile; `cache` static starts a sequence with a
    `StaticCache` of `ctx.max_context` slots.
    """
    twin = twin_of(model)
    twin.set_attn_implementation(attention)
    forward: Callable[..., Any] = twin.forward
    if compile != "off":
        forward = torch.compile(forward, dynamic=True, mode=compile)
    if cache == "static":
        forward = _static(forward, twin.config, ctx)
    return {"": forward}


def twin_of(model: nn.Module) -> Any:
    """Return a copy of the module tree with its own config and the very same tensors."""
    shared = {id(t): t for t in (*model.parameters(), *model.buffers())}
    twin = copy.deepcopy(model, shared)
    # An engine may have hung a forward on the instance; the twin runs its class's own.
    for module in twin.modules():
        module.__dict__.pop("forward", None)
    return twin


def _static(forward: Callable[..., Any], config: Any, ctx: Any) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get(ctx.cache_name) is None and kwargs.get("use_cache", True):
            kwargs[ctx.cache_name] = StaticCache(config=config, max_cache_len=ctx.max_context)
        return forward(*args, **kwargs)

    return run
