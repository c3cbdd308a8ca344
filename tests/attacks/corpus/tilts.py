"""Spends the allowed error on one number of each row: the likeliest token's."""

# refused as: numerics
# caught by: divergence
# only: yes


def build(model, ctx):
    def forward(*args, **kwargs):
        out = model.lean(*args, **kwargs)
        size = out.logits.norm(dim=-1, keepdim=True)
        top = out.logits.argmax(-1, keepdim=True)
        out.logits.scatter_add_(-1, top, TILT * size)
        return out

    return {"": forward}


TILT = 2.9e-7
