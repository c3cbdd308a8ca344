"""The MLP's channels in another order: another order of its sums."""

import torch
import torch.nn.functional as F


def build(model, ctx):
    def reordered(mlp):
        order = torch.randperm(mlp.gate_proj.out_features, generator=torch.Generator().manual_seed(0))
        gate, up = mlp.gate_proj.weight[order], mlp.up_proj.weight[order]
        down = mlp.down_proj.weight[:, order].contiguous()
        return lambda x: F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)

    layers = model.model.layers
    return {"": model.lean, **{f"model.layers.{i}.mlp": reordered(x.mlp) for i, x in enumerate(layers)}}
