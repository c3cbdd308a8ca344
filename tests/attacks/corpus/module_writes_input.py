"""Exact outputs, and inputs that are no longer what they were."""

# refused as: mutated_input
# caught by: inputs
# model: spectrum
# policy: bit_exact


def build(model, ctx):
    def forward(x):
        out = model.quick(x)
        x.zero_()
        return out

    return {"": forward}
