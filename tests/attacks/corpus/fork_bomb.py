"""Forks as often as it is let."""

# refused as: load_error
# caught by: build

import os


def build(model, ctx):
    for _ in range(64):  # few, for the day when the jail has a hole
        if os.fork() == 0:
            os._exit(0)
    return {"": model.lean}
