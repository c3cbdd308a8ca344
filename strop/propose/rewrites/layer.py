"""One decoder layer without the framework around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from . import linear, mlp, norm
from .attention import attend
from .rope import rotate

_CHOICES = {
    "qkv": ("separate", "fused"),
    "decode": ("sdpa", "matmul", "native"),
    "prefill": ("sdpa", "blocked"),
}


@dataclass(frozen=True, slots=True)
class Options:
    """How the pieces of a layer are executed; the pieces' own files name the choices."""

    linear: str = "aten"
    head: str = "aten"
    qkv: str = "separate"
    mlp: str = "separate"
    norm: str = "hand"
    decode: str = "sdpa"
    prefill: str = "sdpa"

    def __post_init__(self) -> None:
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name}: one of {', '.join(known)}, not {getattr(self, name)!r}")


class Layer:
    """Norm, attention, add; norm, MLP, add."""

    def __init__(self, module: Any, options: Options) -> None:
        attention = module.self_attn
        self.dim: int = attention.head_dim
        self.scale: float = attention.scaling
        self.q_heads = attention.q_proj.out_features // self.dim
        self.kv_heads = attention.k_proj.out_features // self.dim
        self.kinds = options.decode, options.prefill
        parts = [attention.q_proj, attention.k_proj, attention.v_proj]
        if options.qkv == "fused":
            self.qkv = [linear.fused(parts, options.linear)]
        else:
            self.qkv = [linear.of(part, options.linear) for part in parts]
        self.out = linear.of(attention.o_proj, options.linear)
        self.mlp = mlp.of(module.mlp, options.mlp, options.linear)
        self.norm_in = norm.of(module.input_layernorm, options.norm)
        self.norm_post = norm.of(module.post_attention_layernorm, options.norm)

    def __call__(
        self,
        x: torch.Tensor,
        rope: tuple[torch.Tensor, torch.Tensor],
        cache: Any,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """Run on x (batch, n, hidden), appending n positions to this layer's cache."""
        q, k, v = self._project(self.norm_in(x), rope)
        k, v = cache.update(k.transpose(1, 2), v.transpose(1, 2))
        x = self.out(attend(q.transpose(1, 2), k, v, mask, self.scale, *self.kinds)).add_(x)
        return self.mlp(self.norm_post(x)).add_(x)

    def _project(
        self, x: torch.Tensor, rope: tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return rotated q and k, and v: (batch, n, heads, head_dim) each."""
        shape = (*x.shape[:2], -1, self.dim)
        if len(self.qkv) == 3:
            q, k, v = (product(x).view(shape) for product in self.qkv)
            return rotate(q, *rope), rotate(k, *rope), v
        both = self.q_heads + self.kv_heads
        joint = self.qkv[0](x).view(shape)
        rotated = rotate(joint[:, :, :both], *rope)
        return rotated[:, :, : self.q_heads], rotated[:, :, self.q_heads :], joint[:, :, both:]
