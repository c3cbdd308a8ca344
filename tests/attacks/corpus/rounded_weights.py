"""Weights with 12 bits of mantissa less, as if nobody could tell."""

# refused as: numerics
# caught by: error

import torch


def build(model, ctx):
    weight = (model.lm_head.weight.view(torch.int32) & ~0xFFF).view(torch.float32)
    return {"": model.lean, "lm_head": lambda x: x @ weight.t()}
