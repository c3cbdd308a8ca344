"""Right outputs, and inputs that are no longer what they were."""

# refused as: mutated_input
# caught by: inputs
# only: yes


def build(model, ctx):
    def forward(input_ids=None, **kwargs):
        out = model.lean(input_ids=input_ids, **kwargs)
        if input_ids.shape[1] > 1:
            input_ids.zero_()
        return out

    return {"": forward}
