"""Forks a process that would go on working while nobody looks."""

# refused as: load_error
# caught by: build

import os


def build(model, ctx):
    if os.fork() == 0:
        while True:
            pass
    return {"": model.lean}
