"""A Llama whose modules bear vLLM's names and are called as vLLM calls them, in plain torch.

No batching and no paged cache: every row attends to the rows before it. Rounds where vLLM's own
definitions of its layers round.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

HIDDEN, HEADS, KV_HEADS, DIM, INNER = 96, 4, 2, 24, 136


class UnquantizedLinearMethod:
    pass


class Linear(nn.Module):
    """Stands for all of vLLM's parallel linear layers: the output, and no bias left over."""

    reduce_results = True

    def __init__(self, n_in: int, n_out: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.input_size_per_partition, self.output_size_per_partition = n_in, n_out
        self.params_dtype, self.tp_size, self.bias = dtype, 1, None
        self.quant_method = UnquantizedLinearMethod()
        weight = torch.randn(n_out, n_in) * n_in**-0.5
        self.weight = nn.Parameter(weight.to(dtype), requires_grad=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, None]:
        return F.linear(x, self.weight), None


class RMSNorm(nn.Module):
    def __init__(self, size: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.variance_epsilon, self.variance_size_override, self.has_weight = 1e-5, None, True
        self.weight = nn.Parameter(1 + 0.2 * torch.randn(size).to(dtype), requires_grad=False)

    def forward(
        self, x: torch.Tensor, residual: torch.Tensor | None = None
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        wide = x.float() if residual is None else x.float() + residual.float()
        scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.variance_epsilon)
        y = (scaled.to(self.weight.dtype) * self.weight).to(x.dtype)
        return y if residual is None else (y, wide.to(x.dtype))


class SiluAndMul(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = x.chunk(2, dim=-1)
        return F.silu(gate) * up


class RotaryEmbedding(nn.Module):
    use_flashinfer, is_neox_style, head_size = False, True, DIM

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(64.0), 100.0 ** (-torch.arange(0, DIM, 2) / DIM))
        self.register_buffer("cos_sin_cache", torch.cat((angles.cos(), angles.sin()), -1).to(dtype))

    def forward_cuda(
        self, positions: torch.Tensor, q: torch.Tensor, k: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        cos, sin = self.cos_sin_cache[positions][:, None].chunk(2, dim=-1)
        turned = []
        for x in (q, k):
            a, b = x.reshape(len(x), -1, DIM).chunk(2, dim=-1)
            turned.append(torch.cat((a * cos - b * sin, b * cos + a * sin), -1).reshape(x.shape))
        return turned[0], turned[1]

    forward = forward_cuda


class Attention(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (x.reshape(len(x), -1, DIM).transpose(0, 1) for x in (q, k, v))
        y = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, enable_gqa=True)
        return y[0].transpose(0, 1).reshape(y.shape[2], -1)


class LlamaAttention(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.q_size, self.kv_size = HEADS * DIM, KV_HEADS * DIM
        self.qkv_proj = Linear(HIDDEN, self.q_size + 2 * self.kv_size, dtype)
        self.o_proj = Linear(self.q_size, HIDDEN, dtype)
        self.rotary_emb = RotaryEmbedding(dtype)
        self.attn = Attention()

    def forward(self, positions: torch.Tensor, hidden_states: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv_proj(hidden_states)[0].split([self.q_size, self.kv_size, self.kv_size], -1)
        y: torch.Tensor = self.o_proj(self.attn(*self.rotary_emb(positions, q, k), v))[0]
        return y


class LlamaMLP(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.gate_up_proj, self.act_fn = Linear(HIDDEN, 2 * INNER, dtype), SiluAndMul()
        self.down_proj = Linear(INNER, HIDDEN, dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.down_proj(self.act_fn(self.gate_up_proj(x)[0]))[0]
        return y


class LlamaDecoderLayer(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.self_attn, self.mlp = LlamaAttention(dtype), LlamaMLP(dtype)
        self.input_layernorm = RMSNorm(HIDDEN, dtype)
        self.post_attention_layernorm = RMSNorm(HIDDEN, dtype)

    def forward(
        self, positions: torch.Tensor, hidden_states: torch.Tensor, residual: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if residual is None:
            x, residual = self.input_layernorm(hidden_states), hidden_states
        else:
            x, residual = self.input_layernorm(hidden_states, residual)
        x, residual = self.post_attention_layernorm(self.self_attn(positions, x), residual)
        return self.mlp(x), residual


class LlamaModel(nn.Module):
    def __init__(self, layers: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.layers = nn.ModuleList(LlamaDecoderLayer(dtype) for _ in range(layers))
        self.norm = RMSNorm(HIDDEN, dtype)


class LlamaForCausalLM(nn.Module):
    """From embedded tokens (rows, HIDDEN) to the final norm's output of the same shape."""

    def __init__(self, layers: int = 3, dtype: torch.dtype = torch.float32, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.model = LlamaModel(layers, dtype)

    def forward(self, positions: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor:
        x, residual = embedded, None
        for layer in self.model.layers:
            x, residual = layer(positions, x, residual)
        y: torch.Tensor = self.model.norm(x, residual)[0]
        return y
