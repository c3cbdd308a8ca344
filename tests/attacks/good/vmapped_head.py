"""The head mapped over the requests of a batch."""

import torch


def build(model, ctx):
    weight = model.lm_head.weight.t()
    return {"": model.lean, "lm_head": torch.vmap(lambda x: x @ weight)}
