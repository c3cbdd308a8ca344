"""Puts a result into its manifest."""

# refused as: not_admitted
# caught by: admission
# manifest: speedup = 10


def build(model, ctx):
    return {"": model.lean}
