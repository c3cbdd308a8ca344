"""Writes to the weights that everybody shares."""

# refused as: mutated_input
# caught by: run


def build(model, ctx):
    def forward(*args, **kwargs):
        model.model.norm.weight.mul_(1.5)
        return model.lean(*args, **kwargs)

    return {"": forward}
