"""Returns NaN in the hope that whatever is compared with NaN passes."""

# refused as: nonfinite
# caught by: outputs

import torch


def build(model, ctx):
    def forward(*args, **kwargs):
        out = model.lean(*args, **kwargs)
        out.logits = torch.full_like(out.logits, float("nan"))
        return out

    return {"": forward}
