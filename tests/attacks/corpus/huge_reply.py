"""Returns so much that the judge would run out of memory reading it."""

# refused as: crashed
# caught by: run


def build(model, ctx):
    def forward(*args, **kwargs):
        out = model.lean(*args, **kwargs)
        out.logits = out.logits.repeat(1, 1, 64)
        return out

    return {"": forward}
