"""Reads address 0."""

# refused as: crashed
# caught by: run

import ctypes


def build(model, ctx):
    def forward(*args, **kwargs):
        ctypes.string_at(0)

    return {"": forward}
