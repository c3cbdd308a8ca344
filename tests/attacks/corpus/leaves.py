"""Ends the process with a status that means success."""

# refused as: crashed
# caught by: build

import os


def build(model, ctx):
    os._exit(0)
