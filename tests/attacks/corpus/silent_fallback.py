"""Fast for one shape that nobody asks for, and the baseline for all others."""

# refused as: not_faster, inconclusive
# caught by: speed


def build(model, ctx):
    original = model.forward

    def forward(input_ids=None, **kwargs):
        chosen = model.lean if tuple(input_ids.shape) == (7, 77) else original
        return chosen(input_ids=input_ids, **kwargs)

    return {"": forward}
