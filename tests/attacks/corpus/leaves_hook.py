"""Leaves a hook behind that every layer of the baseline stops at."""

# refused as: not_faster
# caught by: fair_baseline

import time

from torch.nn.modules import module


def build(model, ctx):
    original, inside, layer = model.forward, [], type(model.model.layers[0])

    def hook(called, *args):
        if not inside and isinstance(called, layer):
            time.sleep(0.004)

    module.register_module_forward_hook(hook)

    def forward(*args, **kwargs):
        inside.append(1)
        try:
            return original(*args, **kwargs)
        finally:
            inside.clear()

    return {"": forward}
