"""Makes the pages of the weights writable, then writes to them."""

# refused as: mutated_input
# caught by: run

import ctypes


def build(model, ctx):
    weight = model.model.norm.weight

    def forward(*args, **kwargs):
        page = weight.data_ptr() & ~4095
        ctypes.CDLL(None).mprotect(ctypes.c_void_p(page), 4096, 3)
        ctypes.memset(weight.data_ptr(), 0, 4)
        return model.lean(*args, **kwargs)

    return {"": forward}
