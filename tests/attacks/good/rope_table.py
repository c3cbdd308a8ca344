"""Rotary positions from a table, computed once."""

import torch


def build(model, ctx):
    rope = model.model.rotary_emb
    cos, sin = rope(torch.zeros(1), torch.arange(ctx.max_context)[None])

    def forward(x, position_ids):
        return cos[0][position_ids], sin[0][position_ids]

    return {"": model.lean, "model.rotary_emb": forward}
