"""Raises for lengths that it was not written for."""

# refused as: crashed
# caught by: run


def build(model, ctx):
    def forward(input_ids=None, **kwargs):
        if input_ids.shape[1] % 2:
            raise ValueError("an even length is expected")
        return model.lean(input_ids=input_ids, **kwargs)

    return {"": forward}
