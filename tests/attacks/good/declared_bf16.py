"""One projection's weights in bfloat16, declared and allowed."""

# policy: precision
# manifest: precision = "bf16"

import torch


def build(model, ctx):
    weight = model.model.layers[-1].mlp.gate_proj.weight.bfloat16()

    def forward(x):
        return torch.nn.functional.linear(x.bfloat16(), weight).float()

    return {"": model.lean, f"model.layers.{len(model.model.layers) - 1}.mlp.gate_proj": forward}
