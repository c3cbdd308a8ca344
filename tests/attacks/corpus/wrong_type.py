"""Returns a list where a tensor is expected."""

# refused as: crashed
# caught by: run


def build(model, ctx):
    def forward(*args, **kwargs):
        out = model.lean(*args, **kwargs)
        out.logits = out.logits.tolist()
        return out

    return {"": forward}
