"""Writes to the weights through the file that stands for its own memory."""

# refused as: load_error
# caught by: build

import os


def build(model, ctx):
    memory = os.open("/proc/self/mem", os.O_RDWR)
    os.pwrite(memory, bytes(4), model.model.norm.weight.data_ptr())
    return {"": model.lean}
