"""Keeps its outputs by shape."""

# refused as: numerics, nondeterministic
# caught by: error, repeat, timed_outputs


def build(model, ctx):
    kept = {}

    def forward(*args, **kwargs):
        out = model.lean(*args, **kwargs)
        out.logits = kept.setdefault(tuple(out.logits.shape), out.logits)
        return out

    return {"": forward}
