"""Leaves a hook behind that every module of the baseline stops at."""

# refused as: not_faster
# caught by: fair_baseline

import time

from torch.nn.modules import module


def build(model, ctx):
    original, inside = model.forward, []

    def hook(*args):
        if not inside:
            time.sleep(0.0005)

    module.register_module_forward_hook(hook)

    def forward(*args, **kwargs):
        inside.append(1)
        try:
            return original(*args, **kwargs)
        finally:
            inside.clear()

    return {"": forward}
