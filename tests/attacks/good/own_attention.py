"""Attention as two products and a softmax."""

import torch


def build(model, ctx):
    def turned(x):
        left, right = x.chunk(2, -1)
        return torch.cat((-right, left), -1)

    def attention(m, index):
        def forward(hidden_states, position_embeddings, attention_mask=None, **kwargs):
            batch, count, _ = hidden_states.shape
            shape = (batch, count, -1, m.head_dim)
            q, k, v = (p(hidden_states).view(shape).transpose(1, 2) for p in (m.q_proj, m.k_proj, m.v_proj))
            cos, sin = (part[:, None] for part in position_embeddings)
            q, k = q * cos + turned(q) * sin, k * cos + turned(k) * sin
            if kwargs.get(ctx.cache_name) is not None:
                k, v = kwargs[ctx.cache_name].update(k, v, index)
            groups = q.shape[1] // k.shape[1]
            k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
            scores = (q @ k.transpose(2, 3)) * m.scaling
            total = k.shape[2]
            if attention_mask is None:
                seen = torch.ones(count, total, dtype=torch.bool).tril(total - count)
                scores.masked_fill_(~seen, float("-inf"))
            elif attention_mask.dtype == torch.bool:
                scores.masked_fill_(~attention_mask[..., :total], torch.finfo(scores.dtype).min)
            else:
                scores += attention_mask[..., :total]
            out = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, count, -1)
            return m.o_proj(out), None

        return forward

    layers = model.model.layers
    found = {f"model.layers.{i}.self_attn": attention(x.self_attn, i) for i, x in enumerate(layers)}
    return {"": model.lean, **found}
