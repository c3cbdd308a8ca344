"""One product for gate and up."""

import torch
import torch.nn.functional as F


def build(model, ctx):
    def fused(mlp):
        weight = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight])

        def forward(x):
            gate, up = F.linear(x, weight).chunk(2, -1)
            return F.linear(F.silu(gate) * up, mlp.down_proj.weight)

        return forward

    layers = model.model.layers
    return {"": model.lean, **{f"model.layers.{i}.mlp": fused(x.mlp) for i, x in enumerate(layers)}}
