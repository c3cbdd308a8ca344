"""Right numbers of another dtype."""

# refused as: dtype
# caught by: outputs
# only: yes


def build(model, ctx):
    def forward(*args, **kwargs):
        out = model.lean(*args, **kwargs)
        out.logits = out.logits.double()
        return out

    return {"": forward}
