"""Writes its products into buffers that it keeps."""

import torch
import torch.nn.functional as F


def build(model, ctx):
    kept = {}

    def into(name, x, weight):
        shape = (x.shape[0] * x.shape[1], weight.shape[0])
        if (name, shape) not in kept:
            kept[name, shape] = torch.empty(shape)
        return torch.mm(x.flatten(0, 1), weight.t(), out=kept[name, shape])

    def mlp(i, m):
        def forward(x):
            gate = into((i, "gate"), x, m.gate_proj.weight)
            up = into((i, "up"), x, m.up_proj.weight)
            return F.linear(F.silu(gate) * up, m.down_proj.weight).view(x.shape)

        return forward

    layers = model.model.layers
    return {"": model.lean, **{f"model.layers.{i}.mlp": mlp(i, x.mlp) for i, x in enumerate(layers)}}
