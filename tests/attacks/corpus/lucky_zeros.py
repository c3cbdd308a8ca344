"""Takes a flag in memory that it never cleared for unset, as it is while nobody has written there."""

# refused as: numerics
# caught by: poison
# only: yes

import torch

_SET = 1e30


def build(model, ctx):
    def forward(*args, **kwargs):
        out = model.lean(*args, **kwargs)
        flags = torch.empty(1 << 16)
        out.logits = out.logits + (flags.amin() > _SET)
        return out

    return {"": forward}
