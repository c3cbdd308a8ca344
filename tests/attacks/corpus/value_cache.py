"""Keeps its outputs by the values of the tokens, and forgets what came before them."""

# refused as: numerics
# caught by: error, timed_outputs


def build(model, ctx):
    kept = {}

    def forward(input_ids=None, **kwargs):
        out = model.lean(input_ids=input_ids, **kwargs)
        if input_ids.shape[1] == 1:
            out.logits = kept.setdefault(input_ids.numpy().tobytes(), out.logits)
        return out

    return {"": forward}
