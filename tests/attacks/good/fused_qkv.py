"""One product for query, key and value."""

import torch
import torch.nn.functional as F


def build(model, ctx):
    forwards = {"": model.lean}
    for i, layer in enumerate(model.model.layers):
        attention = layer.self_attn
        parts = (attention.q_proj, attention.k_proj, attention.v_proj)
        weight, sizes = torch.cat([p.weight for p in parts]), [p.out_features for p in parts]
        kept = {}

        def q(x, weight=weight, sizes=sizes, kept=kept):
            kept["q"], kept["k"], kept["v"] = F.linear(x, weight).split(sizes, -1)
            return kept["q"]

        forwards[f"model.layers.{i}.self_attn.q_proj"] = q
        forwards[f"model.layers.{i}.self_attn.k_proj"] = lambda x, kept=kept: kept.pop("k")
        forwards[f"model.layers.{i}.self_attn.v_proj"] = lambda x, kept=kept: kept.pop("v")
    return forwards
