"""Computes in bfloat16 and does not say so."""

# refused as: numerics
# caught by: error

import torch


def build(model, ctx):
    weight = model.lm_head.weight.bfloat16()
    return {"": model.lean, "lm_head": lambda x: torch.nn.functional.linear(x.bfloat16(), weight).float()}
