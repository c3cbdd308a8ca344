"""vLLM's Llama decoder layers from chosen pieces; attention and its cache stay vLLM's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from . import norms
from .product import TILES, Product, make, make_gated

_PARTS = {
    "": {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"},
    "self_attn": {"qkv_proj", "o_proj", "rotary_emb", "attn"},
    "mlp": {"gate_up_proj", "act_fn", "down_proj"},
}
"""All the modules of a layer: with one more (a norm of the queries, say) it computes more."""
_CHOICES = {"mlp": ("native", "ops", "fused"), "rotary": ("native", "ops")}


@dataclass(frozen=True, slots=True)
class Options:
    """How the pieces are executed; kinds and tiles of products are `product`'s."""

    qkv: str = "native"
    qkv_tile: str = TILES[0]
    o: str = "native"
    o_tile: str = TILES[0]
    gate_up: str = "native"
    gate_up_tile: str = TILES[0]
    down: str = "native"
    down_tile: str = TILES[0]
    norm: str = "native"
    mlp: str = "native"
    """silu(gate) * up by vLLM's module, by its compiled kernel, or in gate_up's kernel, which
    then takes the place of `gate_up`."""
    rotary: str = "native"

    def __post_init__(self) -> None:
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name}: one of {', '.join(known)}, not {getattr(self, name)!r}")


def build(model: nn.Module, ctx: Any, **options: str) -> Mapping[str, Callable[..., Any]]:
    """Return new forwards for the decoder layers and the final norm; see `Options`.

    Raises:
        ValueError: not a Llama of vLLM, a choice that it cannot have, or an unknown choice.
        TypeError: an unknown option.
    """
    chosen = Options(**options)
    inner: Any = getattr(model, "model", None)
    if not isinstance(getattr(inner, "layers", None), nn.ModuleList):
        raise ValueError(f"decoder: {type(model).__name__} has no model.layers of decoder layers")
    forwards: dict[str, Callable[..., Any]] = {
        f"model.layers.{index}": Layer(layer, chosen)
        for index, layer in enumerate(inner.layers)
        if not _is_elsewhere(layer)
    }
    if not forwards:
        raise ValueError("decoder: this rank holds no decoder layer")
    # Called by its own path, a native norm needs no forward: it would call itself.
    if chosen.norm != "native" and not _is_elsewhere(inner.norm):
        forwards["model.norm"] = norms.of(inner.norm, chosen.norm)
    return forwards


class Layer:
    """Norm, attention; norm, MLP. Each norm adds what came before to the residual first."""

    def __init__(self, module: Any, options: Options) -> None:
        _check(module)
        attention = module.self_attn
        self.sizes = [attention.q_size, attention.kv_size, attention.kv_size]
        self.qkv = make(attention.qkv_proj, options.qkv, options.qkv_tile)
        self.rotate = _rotary(attention, options.rotary)
        self.attend = attention.attn
        self.out = make(attention.o_proj, options.o, options.o_tile)
        self.mlp = _mlp(module.mlp, options)
        self.norm_in = norms.of(module.input_layernorm, options.norm)
        self.norm_post = norms.of(module.post_attention_layernorm, options.norm)

    def __call__(
        self,
        positions: torch.Tensor,
        hidden_states: torch.Tensor,
        residual: torch.Tensor | None,
        **more: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the layer's output and the residual to add it to, (rows, hidden) each.

        Args:
            positions: (rows,) int64.
            hidden_states: (rows, hidden).
            residual: (rows, hidden); None in the first layer, where hidden_states is both.
            more: nothing; a model that passes more is not this one.
        """
        if more:
            raise ValueError(f"decoder: a Llama layer takes no {', '.join(more)}")
        if residual is None:
            x, residual = self.norm_in(hidden_states), hidden_states
        else:
            x, residual = self.norm_in(hidden_states, residual)
        q, k, v = self.qkv(x).split(self.sizes, dim=-1)
        q, k = self.rotate(positions, q, k)
        x, residual = self.norm_post(self.out(self.attend(q, k, v)), residual)
        return self.mlp(x), residual


def _mlp(module: Any, options: Options) -> Product:
    if options.mlp == options.gate_up == options.down == "native":
        # vLLM may join the activation with what surrounds it; the module knows.
        whole: Product = module
        return whole
    act = _activation(module.act_fn, options.mlp)
    down = make(module.down_proj, options.down, options.down_tile)
    if options.mlp == "fused":
        both = make_gated(module.gate_up_proj, act, options.gate_up_tile)
        return lambda x: down(both(x))
    gate_up = make(module.gate_up_proj, options.gate_up, options.gate_up_tile)
    return lambda x: down(act(gate_up(x)))


def _activation(module: Any, kind: str) -> Product:
    """Return silu(gate) * up of (rows, 2 * n), gate first."""
    if kind != "native" and type(module).__name__ != "SiluAndMul":
        raise ValueError(f"mlp: {type(module).__name__} is not silu(gate) * up; use kind 'native'")
    if kind != "ops":
        called: Product = module
        return called
    if not hasattr(torch.ops._C, "silu_and_mul"):
        raise ValueError("mlp: this vLLM has no compiled silu_and_mul; use kind 'native'")
    kernel = torch.ops._C.silu_and_mul

    def act(x: torch.Tensor) -> torch.Tensor:
        y = x.new_empty((*x.shape[:-1], x.shape[-1] // 2))
        kernel(y, x)
        return y

    return act


def _rotary(attention: Any, kind: str) -> Callable[..., Any]:
    """Return rotate(positions, q, k) -> (q, k); `ops` turns q and k where they lie."""
    module = attention.rotary_emb
    if kind == "native":
        return lambda *tensors: module(*tensors)
    method = getattr(type(module), "forward_cuda", None)
    if getattr(method, "__qualname__", "") != "RotaryEmbedding.forward_cuda" or module.use_flashinfer:
        raise ValueError(f"rotary: {type(module).__name__} is not plain RoPE; use kind 'native'")
    if not hasattr(torch.ops._C, "rotary_embedding"):
        raise ValueError("rotary: this vLLM has no compiled rotary_embedding; use kind 'native'")
    kernel, dim, neox = torch.ops._C.rotary_embedding, module.head_size, module.is_neox_style
    cache = module.cos_sin_cache
    if cache.dtype != attention.qkv_proj.params_dtype:
        raise ValueError(f"rotary: the cosines are {cache.dtype}, not the model's; use kind 'native'")

    def rotate(
        positions: torch.Tensor, q: torch.Tensor, k: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        kernel(positions, q, k, dim, cache, neox)
        return q, k

    return rotate


def _check(layer: Any) -> None:
    for name, expected in _PARTS.items():
        part = getattr(layer, name, None) if name else layer
        held = {child for child, _ in part.named_children()} if isinstance(part, nn.Module) else set()
        if held != expected:
            where = f"{type(layer).__name__}{'.' if name else ''}{name}"
            listed = ", ".join(sorted(held)) or "nothing"
            raise ValueError(f"decoder: {where} holds {listed}, not {', '.join(sorted(expected))}")
    if not (hasattr(layer.self_attn, "q_size") and hasattr(layer.self_attn, "kv_size")):
        raise ValueError(f"decoder: {type(layer.self_attn).__name__} has no q_size and kv_size")


def _is_elsewhere(module: Any) -> bool:
    """Whether another rank of a pipeline holds it."""
    return type(module).__name__ == "PPMissingLayer"
