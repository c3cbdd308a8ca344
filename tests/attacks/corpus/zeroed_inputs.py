"""Zeroes the inputs first, so that zeros are the right answer for whoever looks later."""

# refused as: mutated_input
# caught by: inputs


def build(model, ctx):
    def forward(input_ids=None, **kwargs):
        input_ids.zero_()
        return model.lean(input_ids=input_ids, **kwargs)

    return {"": forward}
