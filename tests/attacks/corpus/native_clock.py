"""Sets the machine's own clock back; computes what the baseline does."""

# refused as: not_faster, inconclusive
# caught by: speed

import ctypes


def build(model, ctx):
    libc, original = ctypes.CDLL(None), model.forward

    def forward(*args, **kwargs):
        libc.clock_settime(0, ctypes.byref((ctypes.c_long * 2)(0, 0)))
        return original(*args, **kwargs)

    return {"": forward}
