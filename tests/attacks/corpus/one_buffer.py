"""Returns the same buffer at every step, so that old answers change with new ones."""

# refused as: numerics
# caught by: error


def build(model, ctx):
    kept = {}

    def forward(*args, **kwargs):
        out = model.lean(*args, **kwargs)
        shape = out.logits.shape
        out.logits = kept.setdefault(shape, out.logits.clone()).copy_(out.logits)
        return out

    return {"": forward}
