"""Another last bit wherever the inputs lie at another address, as with kernels that depend on alignment."""

# refused as: nondeterministic
# caught by: repeat
# only: yes


def build(model, ctx):
    first = {}

    def forward(input_ids=None, **kwargs):
        out = model.lean(input_ids=input_ids, **kwargs)
        if first.setdefault(input_ids.shape, input_ids.data_ptr()) != input_ids.data_ptr():
            out.logits.mul_(1 + 2**-23)
        return out

    return {"": forward}
