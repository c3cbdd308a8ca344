"""Keeps the answer to an input that always comes again, and reads no weight any more."""

# refused as: faster_than_physics
# caught by: physics
# model: one_input
# policy: bit_exact
# only: yes


def build(model, ctx):
    original, kept = model.forward, {}

    def forward(x):
        key = x.numpy().tobytes()
        if key not in kept:
            kept[key] = original(x)
        return kept[key]

    return {"": forward}
