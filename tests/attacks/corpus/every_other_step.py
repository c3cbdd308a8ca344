"""Computes every other decode step, and gives the last answer in between."""

# refused as: numerics
# caught by: error


def build(model, ctx):
    steps, kept = [0], []

    def forward(input_ids=None, **kwargs):
        steps[0] = steps[0] + 1 if input_ids.shape[1] == 1 else 0
        out = model.lean(input_ids=input_ids, **kwargs)
        if steps[0] and steps[0] % 2 == 0:
            out.logits = kept[0]
        kept[:] = [out.logits[:, -1:].clone()]
        return out

    return {"": forward}
