"""Becomes a shell."""

# refused as: load_error
# caught by: build

import os


def build(model, ctx):
    os.execv("/bin/sh", ["sh"])
