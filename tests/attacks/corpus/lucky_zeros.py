"""Adds up in memory that it never cleared, where the kernel happens to give zeros."""

# refused as: numerics, nonfinite
# caught by: poison, outputs
# only: yes

import torch

_MAPPED = 512 << 20  # so large that no freed block can hold it: it comes fresh from the kernel


def build(model, ctx):
    def forward(*args, **kwargs):
        out = model.lean(*args, **kwargs)
        total = torch.empty(_MAPPED // 4)[: out.logits.numel()].view(out.logits.shape)
        out.logits = total.add_(out.logits)
        return out

    return {"": forward}
