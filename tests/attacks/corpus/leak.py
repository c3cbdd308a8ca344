"""Mixes a little of one request into the others of its batch."""

# refused as: numerics, nondeterministic
# caught by: error, repeat, timed_outputs


def build(model, ctx):
    def forward(*args, **kwargs):
        out = model.lean(*args, **kwargs)
        if out.logits.shape[0] > 1:
            out.logits += 1e-4 * out.logits.flip(0)
        return out

    return {"": forward}
