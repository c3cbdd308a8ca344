"""Leaves out the last token of the vocabulary."""

# refused as: shape
# caught by: outputs


def build(model, ctx):
    def forward(*args, **kwargs):
        out = model.lean(*args, **kwargs)
        out.logits = out.logits[..., :-1]
        return out

    return {"": forward}
