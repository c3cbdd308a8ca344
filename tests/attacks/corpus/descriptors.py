"""Opens descriptors until there are none left."""

# refused as: load_error
# caught by: build

import os


def build(model, ctx):
    kept = [os.dup(0) for _ in range(100_000)]
    return {"": model.lean} if kept else None
