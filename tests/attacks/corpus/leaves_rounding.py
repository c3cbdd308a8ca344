"""Leaves the processor rounding upwards for whoever comes next."""

# refused as: mutated_input
# caught by: restore

import ctypes

_NEAREST, _UPWARD = 0x000, 0x800


def build(model, ctx):
    libm = ctypes.CDLL("libm.so.6")

    def forward(*args, **kwargs):
        libm.fesetround(_NEAREST)
        out = model.lean(*args, **kwargs)
        out.logits.add_(0)
        libm.fesetround(_UPWARD)
        return out

    return {"": forward}
