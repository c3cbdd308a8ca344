"""Exact as often as an exam asks, and wrong in the timed calls."""

# refused as: numerics
# caught by: timed_outputs
# model: spectrum
# policy: bit_exact


def build(model, ctx):
    calls = [0]

    def forward(x):
        calls[0] += 1
        out = model.quick(x)
        if calls[0] > 14:
            out["scores"] = out["scores"] * 1.5
        return out

    return {"": forward}
