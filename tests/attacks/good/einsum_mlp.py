"""The MLP in Einstein's notation."""

import torch
import torch.nn.functional as F


def build(model, ctx):
    def mlp(m):
        def forward(x):
            gate = torch.einsum("btd,fd->btf", x, m.gate_proj.weight)
            up = torch.einsum("btd,fd->btf", x, m.up_proj.weight)
            return torch.einsum("btf,df->btd", F.silu(gate) * up, m.down_proj.weight)

        return forward

    layers = model.model.layers
    return {"": model.lean, **{f"model.layers.{i}.mlp": mlp(x.mlp) for i, x in enumerate(layers)}}
