"""Gives tokens that are never chosen minus infinity instead of computing them."""

# refused as: nonfinite
# caught by: outputs


def build(model, ctx):
    def forward(*args, **kwargs):
        out = model.lean(*args, **kwargs)
        out.logits[..., -64:] = float("-inf")
        return out

    return {"": forward}
