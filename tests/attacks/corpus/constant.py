"""Returns zeros."""

# refused as: numerics
# caught by: error

import torch


def build(model, ctx):
    def forward(*args, **kwargs):
        out = model.lean(*args, **kwargs)
        out.logits = torch.zeros_like(out.logits)
        return out

    return {"": forward}
