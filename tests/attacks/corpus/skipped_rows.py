"""Computes only the rows that a server would look at."""

# refused as: numerics
# caught by: error


def build(model, ctx):
    def forward(*args, **kwargs):
        out = model.lean(*args, **kwargs)
        out.logits[:, :-1] = out.logits[:, -1:]
        return out

    return {"": forward}
