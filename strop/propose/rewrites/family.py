"""Which models these rewrites know, and where their parts are."""

from __future__ import annotations

from typing import Any

from torch import nn

KNOWN = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM")
"""Pre-norm decoders with RMSNorm, rotary positions, grouped-query attention and a gated MLP."""

_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj", "head_dim", "scaling")
_LAYER = ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp")
_MODEL = ("embed_tokens", "layers", "norm", "rotary_emb")


def check(model: nn.Module) -> None:
    """Make sure that the whole-forward rewrites compute what this model computes.

    Raises:
        ValueError: another architecture, or a feature of it that is not covered.
    """
    name = type(model).__name__
    if name not in KNOWN:
        raise ValueError(f"{name} is not of the Llama family ({', '.join(KNOWN)})")
    inner: Any = model.model
    _has(inner, _MODEL, "model")
    scaling = getattr(inner.rotary_emb, "rope_type", "default")
    if scaling in ("dynamic", "longrope"):
        # The model's own rotary module then keeps state from one sequence to the next.
        raise ValueError(f"rotary positions of type {scaling!r} are not covered")
    for layer in inner.layers:
        _has(layer, _LAYER, "layer")
        _has(layer.self_attn, _ATTENTION, "self_attn")
        window = getattr(layer.self_attn, "sliding_window", None)
        if name == "MistralForCausalLM":
            window = getattr(model.config, "sliding_window", None)
        if window is not None:
            raise ValueError(f"{name} with sliding-window attention is not covered")


def layers(model: Any) -> list[Any]:
    """Return the decoder layers that the model runs: all of them, or the first K."""
    return list(model.model.layers[: model.config.num_hidden_layers])


def _has(part: Any, names: tuple[str, ...], what: str) -> None:
    for name in names:
        if not hasattr(part, name):
            raise ValueError(f"this {what} has no {name}: not of the Llama family")
