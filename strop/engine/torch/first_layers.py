"""The fast tier's model: the first K layers, sharing every weight with the whole one."""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

__all__ = ["decoder_layers", "first_layers", "pick_k"]


def decoder_layers(model: nn.Module) -> tuple[str, nn.ModuleList] | None:
    """Return path and list of the decoder layers, None for a model that has no such list.

    They are the longest ModuleList, if it is as long as the config says.
    """
    lists = [(p, m) for p, m in model.named_modules() if isinstance(m, nn.ModuleList)]
    if not lists:
        return None
    path, layers = max(lists, key=lambda pair: len(pair[1]))
    said = getattr(getattr(model, "config", None), "num_hidden_layers", len(layers))
    return (path, layers) if said == len(layers) else None


def pick_k(layers: int, wanted: int) -> int:
    """Return K: as the deployment says, else a fifth of the layers and at least 2."""
    return min(layers, wanted or max(2, layers // 5))


def first_layers(model: nn.Module, k: int) -> nn.Module:
    """Return a copy of `model` with its first `k` decoder layers and the very same tensors."""
    found = decoder_layers(model)
    if found is None:
        return model
    path, layers = found
    shared: dict[int, Any] = {id(t): t for t in (*model.parameters(), *model.buffers())}
    # Layers past K are left out of the copy before it is made.
    shared.update({id(layer): layer for layer in layers[k:]})
    short = copy.deepcopy(model, shared)
    parent, _, name = path.rpartition(".")
    kept = list(short.get_submodule(path).children())[:k]
    setattr(short.get_submodule(parent), name, nn.ModuleList(kept))
    _shorten_config(short, k)
    return short


def _shorten_config(model: nn.Module, k: int) -> None:
    for module in model.modules():
        config = getattr(module, "config", None)
        if config is not None and hasattr(config, "num_hidden_layers"):
            config.num_hidden_layers = k
            if getattr(config, "layer_types", None):
                config.layer_types = config.layer_types[:k]
