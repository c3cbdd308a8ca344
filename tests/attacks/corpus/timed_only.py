"""Right in every exam; drops a layer where it sees that it is timed."""

# refused as: numerics
# caught by: timed_outputs
# only: yes


def build(model, ctx):
    layers, seen = model.model.layers, {"timed": False}

    def forward(input_ids=None, **kwargs):
        if input_ids.shape[1] > 1:  # an exam wants the logits of the whole prompt
            seen["timed"] = kwargs.get("logits_to_keep") == 1
        if not seen["timed"] or input_ids.shape[1] > 1:
            return model.lean(input_ids=input_ids, **kwargs)
        last = layers[-1]
        original = last.forward
        last.forward = lambda x, *args, **kwargs: original(x, *args, **kwargs) * 0 + x
        try:
            return model.lean(input_ids=input_ids, **kwargs)
        finally:
            del last.forward

    return {"": forward}
