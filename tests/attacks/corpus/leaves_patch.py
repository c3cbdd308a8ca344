"""Right outputs, and a patched activation that changes the bits of the baseline."""

# refused as: mutated_input
# caught by: restore
# only: yes

import torch.nn.functional as F


def build(model, ctx):
    original, inside = F.silu, []

    def silu(x, inplace=False):
        return original(x) if inside else x * x.sigmoid()

    F.silu = silu

    def forward(*args, **kwargs):
        inside.append(1)
        try:
            return model.lean(*args, **kwargs)
        finally:
            inside.pop()

    return {"": forward}
