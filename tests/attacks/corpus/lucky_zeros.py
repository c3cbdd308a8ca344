"""Adds up in memory that it never cleared, where the kernel happens to give zeros."""

# refused as: numerics, nonfinite
# caught by: poison, outputs
# only: yes

import torch

_MAPPED = 32 << 20  # floats: 128 MiB, more than malloc keeps back, so the kernel maps fresh pages each time


def build(model, ctx):
    def forward(*args, **kwargs):
        out = model.lean(*args, **kwargs)
        count = out.logits.numel()
        total = torch.empty(max(_MAPPED, count))[:count].view(out.logits.shape)
        out.logits = total.add_(out.logits)
        return out

    return {"": forward}
