"""The MLP's products as a batch of two."""

import torch


def build(model, ctx):
    def mlp(m):
        both = torch.stack((m.gate_proj.weight.t(), m.up_proj.weight.t()))

        def forward(x):
            gate, up = torch.bmm(x.flatten(0, 1).expand(2, -1, -1), both)
            return m.down_proj((torch.nn.functional.silu(gate) * up).view(*x.shape[:2], -1))

        return forward

    layers = model.model.layers
    return {"": model.lean, **{f"model.layers.{i}.mlp": mlp(x.mlp) for i, x in enumerate(layers)}}
