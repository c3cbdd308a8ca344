"""The whole forward pass of a Llama-family causal LM, put together from the pieces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import CausalLMOutputWithPast

from . import family, head, linear, norm
from .attention import causal
from .cache import adopt
from .layer import Layer, Options
from .rope import Rope


def build(model: nn.Module, ctx: Any, **options: str) -> Mapping[str, Callable[..., Any]]:
    """Return {"": forward}, the whole forward pass; see `layer.Options` for the options.

    Raises:
        ValueError: the model is not of the Llama family, an option is not known, or the
            deployment did not opt in to a change of precision.
    """
    family.check(model)
    chosen = Options(**options)
    linear.check_allowed([chosen.linear, chosen.head], ctx.precision)
    return {"": Llama(model, ctx.cache_name, chosen).forward}


_IMPLIED = {"return_dict", "cache_position"}


class Llama:
    """Embedding, layers, head. What it does not cover goes to the model's own forward."""

    def __init__(self, model: Any, cache_name: str, options: Options) -> None:
        self.original = type(model).forward.__get__(model)
        self.cache_name = cache_name
        self.native = _native(model) if options.decode == "native" else None
        self.embed = model.model.embed_tokens
        self.layers = [Layer(module, options) for module in family.layers(model)]
        self.norm = norm.of(model.model.norm, options.norm)
        self.head = linear.of(model.lm_head, options.head)
        weight = self.embed.weight
        self.rope = Rope(model.model.rotary_emb, weight.dtype, weight.device)

    @torch.no_grad()
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        *args: Any,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        **rest: Any,
    ) -> Any:
        """Return an output with `logits` (batch, kept, vocab) and the KV cache."""
        given = rest.pop(self.cache_name, None)
        asked = {k: v for k, v in rest.items() if v is not None and v is not False}
        # What `generate` always says, and what follows from the cache, asks for nothing new.
        other = bool(args) or bool(asked.keys() - _IMPLIED) or rest.get("return_dict") is False
        flat = attention_mask is None or attention_mask.dim() == 2
        cache = None if other or input_ids is None or not flat else adopt(given, len(self.layers))
        if cache is None or input_ids is None:
            rest[self.cache_name] = given
            kept = {"use_cache": use_cache, "logits_to_keep": logits_to_keep}
            return self.original(input_ids, attention_mask, position_ids, *args, **kept, **rest)
        logits = self._logits(input_ids, attention_mask, position_ids, cache.layers, logits_to_keep)
        fields: dict[str, Any] = {"logits": logits, self.cache_name: cache}
        return CausalLMOutputWithPast(**fields)

    def _logits(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None,
        position_ids: torch.Tensor | None,
        caches: list[Any],
        keep: int | torch.Tensor,
    ) -> torch.Tensor:
        past, count = caches[0].get_seq_length(), input_ids.shape[1]
        mask = visible(attention_mask, count, past + count)
        rope = self.rope.at(past, count, position_ids)
        if self.native is not None and count == 1 and past > 0 and isinstance(keep, int):
            return self.native(input_ids, rope, caches[: len(self.layers)], mask)
        x = self.embed(input_ids)
        for layer, cache in zip(self.layers, caches, strict=False):
            x = layer(x, rope, cache, mask)
        return head.logits(x, keep, self.norm, self.head)


def _native(model: Any) -> Callable[..., torch.Tensor]:
    from .native import NativeDecode

    return NativeDecode(model, family.layers(model))


def visible(attention_mask: torch.Tensor | None, count: int, total: int) -> torch.Tensor | None:
    """Return a bool (batch, 1, count, total), True where a query may look; None for plain causal.

    `attention_mask` is (batch, total) with 0 at padding; one without padding masks nothing.
    """
    if attention_mask is None:
        return None
    keys = attention_mask.bool()
    if bool(keys.all()):
        return None
    keys = keys[:, None, None, :total]
    return keys if count == 1 else keys & causal(count, total, keys.device)
