"""Builds without a fault and asks for a terabyte at the first step."""

# refused as: oom
# caught by: run

import torch


def build(model, ctx):
    def forward(*args, **kwargs):
        return torch.empty(1 << 38)

    return {"": forward}
