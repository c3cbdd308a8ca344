"""Half of the waste, bit for bit."""

# model: spectrum
# policy: bit_exact


def build(model, ctx):
    def forward(x):
        for _ in range(20):
            out = model.quick(x)
        return out

    return {"": forward}
