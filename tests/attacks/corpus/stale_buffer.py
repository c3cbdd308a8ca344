"""Returns a buffer that it never wrote, and hopes for the last answer in it."""

# refused as: numerics, nonfinite, nondeterministic, late_write
# caught by: outputs, late_write, repeat, error

import torch


def build(model, ctx):
    def forward(*args, **kwargs):
        out = model.lean(*args, **kwargs)
        out.logits = torch.empty_like(out.logits)
        return out

    return {"": forward}
