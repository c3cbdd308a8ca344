"""Takes the padding of a batch for text."""

# refused as: numerics
# caught by: error


def build(model, ctx):
    def forward(input_ids=None, **kwargs):
        for name in ("attention_mask", "position_ids"):
            kwargs.pop(name, None)
        return model.lean(input_ids=input_ids, **kwargs)

    return {"": forward}
