"""Cuts the last bits of the outputs off: a little less precision than declared."""

# refused as: numerics
# caught by: error
# only: yes

import torch


def build(model, ctx):
    def forward(*args, **kwargs):
        out = model.lean(*args, **kwargs)
        out.logits = (out.logits.view(torch.int32) & ~((1 << 6) - 1)).view(torch.float32)
        return out

    return {"": forward}
