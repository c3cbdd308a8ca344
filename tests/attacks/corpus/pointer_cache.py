"""Keeps its outputs by the address of the inputs."""

# refused as: numerics, shape, crashed
# caught by: error, outputs, run


def build(model, ctx):
    kept = {}

    def forward(input_ids=None, **kwargs):
        key = (input_ids.data_ptr(), input_ids.shape, kwargs.get("logits_to_keep"))
        if key not in kept:
            kept[key] = model.lean(input_ids=input_ids, **kwargs)
        return kept[key]

    return {"": forward}
