"""Computes the first request of a batch and gives its answer to all."""

# refused as: numerics
# caught by: error


def build(model, ctx):
    def forward(*args, **kwargs):
        out = model.lean(*args, **kwargs)
        out.logits[1:] = out.logits[:1]
        return out

    return {"": forward}
