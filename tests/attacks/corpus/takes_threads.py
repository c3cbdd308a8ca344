"""Leaves the baseline a single thread."""

# refused as: not_faster, inconclusive
# caught by: fair_baseline, speed

import torch


def build(model, ctx):
    original, wanted = model.forward, torch.set_num_threads
    torch.set_num_threads = lambda count: wanted(1)

    def forward(*args, **kwargs):
        wanted(ctx.threads)
        try:
            return original(*args, **kwargs)
        finally:
            wanted(1)

    return {"": forward}
