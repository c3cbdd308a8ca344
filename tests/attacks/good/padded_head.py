"""A head of a rounder size, cut off again."""

import torch


def build(model, ctx):
    size = model.lm_head.weight.shape[0]
    weight = torch.nn.functional.pad(model.lm_head.weight, (0, 0, 0, 128)).t().contiguous()
    return {"": model.lean, "lm_head": lambda x: (x @ weight)[..., :size]}
