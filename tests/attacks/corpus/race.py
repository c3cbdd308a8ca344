"""Differs by the last bit from call to call, as a race does that is lost now and then."""

# refused as: nondeterministic
# caught by: repeat, poison

import torch


def build(model, ctx):
    def forward(*args, **kwargs):
        out = model.lean(*args, **kwargs)
        out.logits.mul_(1 + 6e-8 * torch.randint(-1, 2, out.logits.shape))
        return out

    return {"": forward}
