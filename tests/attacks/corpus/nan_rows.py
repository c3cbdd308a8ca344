"""A division by zero in one row of many."""

# refused as: nonfinite
# caught by: outputs


def build(model, ctx):
    def forward(*args, **kwargs):
        out = model.lean(*args, **kwargs)
        out.logits[:, 0, 0] = float("nan")
        return out

    return {"": forward}
