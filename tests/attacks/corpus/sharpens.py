"""Declared int8, allowed: surer of everything than the model is."""

# refused as: quality
# caught by: perplexity
# policy: precision
# manifest: precision = "int8"
# only: yes


def build(model, ctx):
    def forward(*args, **kwargs):
        out = model.lean(*args, **kwargs)
        out.logits.mul_(1.25)
        return out

    return {"": forward}
