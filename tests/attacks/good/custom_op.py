"""An operator of its own."""

import torch


@torch.library.custom_op("strop_corpus::gated", mutates_args=())
def gated(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(gate) * up


def build(model, ctx):
    def mlp(m):
        return lambda x: m.down_proj(gated(m.gate_proj(x), m.up_proj(x)))

    layers = model.model.layers
    return {"": model.lean, **{f"model.layers.{i}.mlp": mlp(x.mlp) for i, x in enumerate(layers)}}
