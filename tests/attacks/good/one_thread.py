"""Without the waste, on one thread."""

# manifest: threads = 1


def build(model, ctx):
    return {"": model.lean}
