"""Keeps its outputs by a key that leaves out all but the last token and the length."""

# refused as: numerics, nondeterministic
# caught by: error, repeat, timed_outputs


def build(model, ctx):
    kept, position = {}, [0]

    def forward(input_ids=None, **kwargs):
        position[0] = input_ids.shape[1] if input_ids.shape[1] > 1 else position[0] + 1
        out = model.lean(input_ids=input_ids, **kwargs)
        if input_ids.shape[1] == 1:
            out.logits = kept.setdefault(
                (int(input_ids[0, -1]) % 8, position[0], out.logits.shape), out.logits
            )
        return out

    return {"": forward}
