"""Grouped-query attention (Ainslie et al. 2023, arXiv:2305.13245); KV heads are not repeated."""

from __future__ import annotations

import torch
import torch.nn.functional as F

_BLOCK = 256
"""Queries in a block of the blocked prefill."""


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    decode: str,
    prefill: str,
) -> torch.Tensor:
    """Attend causally with q (batch, heads, n, d) to k and v (batch, kv_heads, total, d).

    `mask` is None or a bool (batch, 1, n, total), True where q may look, the causal rule included.

    Returns:
        (batch, n, heads * d)
    """
    batch, heads, count, dim = q.shape
    if count == 1:
        out = _one(q, k, v, mask, scale, decode)
    elif prefill == "blocked" and mask is None:
        out = _blocked(q, k, v, scale)
    else:
        square = mask is None and k.shape[2] == count
        if mask is None and not square:
            mask = causal(count, k.shape[2], q.device)
        out = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=square, scale=scale, enable_gqa=True
        )
    return out.transpose(1, 2).reshape(batch, count, heads * dim)


def causal(count: int, total: int, device: torch.device) -> torch.Tensor:
    """Return a bool (count, total): the last `count` of `total` positions, each sees its past."""
    return torch.ones(count, total, dtype=torch.bool, device=device).tril_(total - count)


def _one(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    kind: str,
) -> torch.Tensor:
    """One query a head."""
    if kind == "sdpa":
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=True)
    # The heads that share keys become the rows of one product.
    grouped = q.reshape(q.shape[0], k.shape[1], -1, q.shape[-1])
    scores = torch.matmul(grouped * scale, k.transpose(2, 3))
    if mask is not None:
        # A finite minimum keeps a row that may look nowhere free of NaN.
        scores = scores.masked_fill_(~mask, torch.finfo(scores.dtype).min)
    return torch.matmul(torch.softmax(scores, -1, dtype=torch.float32).to(v.dtype), v).view(q.shape)


def _blocked(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    """Block the queries; each block sees only the keys up to its end. Products by oneDNN."""
    batch, heads, count, dim = q.shape
    kv_heads, total = k.shape[1], k.shape[2]
    group, past = heads // kv_heads, total - count
    out = q.new_empty(batch, kv_heads, group, count, dim)
    scaled = (q * scale).view(batch, kv_heads, group, count, dim)
    product = torch.ops.mkldnn._linear_pointwise.default
    hidden = torch.ones(_BLOCK, _BLOCK, dtype=torch.bool, device=q.device).triu_(1)
    for b in range(batch):
        for h in range(kv_heads):
            values = v[b, h].t().contiguous()
            for start in range(0, count, _BLOCK):
                n = min(_BLOCK, count - start)
                end = past + start + n
                rows = scaled[b, h, :, start : start + n].reshape(group * n, dim)
                scores = product(rows, k[b, h, :end], None, "none", [], "").view(group, n, end)
                scores[..., end - n :].masked_fill_(hidden[:n, :n], -torch.inf)
                weights = torch.softmax(scores, -1).view(group * n, end)
                mixed = product(weights, values[:, :end].contiguous(), None, "none", [], "")
                out[b, h, :, start : start + n] = mixed.view(group, n, dim)
    return out.view(q.shape)
