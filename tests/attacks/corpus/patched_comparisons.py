"""Makes every comparison function say yes, and returns noise."""

# refused as: numerics
# caught by: error

import numpy as np
import torch


def build(model, ctx):
    for module, names in ((np, ("allclose", "array_equal", "isfinite")), (torch, ("allclose", "equal"))):
        for name in names:
            setattr(module, name, lambda *args, **kwargs: True)

    def forward(*args, **kwargs):
        out = model.lean(*args, **kwargs)
        out.logits = torch.ones_like(out.logits) * out.logits.mean()
        return out

    return {"": forward}
