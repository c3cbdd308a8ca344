"""Swaps the model for a smaller one: half of its layers."""

# refused as: numerics
# caught by: error


def build(model, ctx):
    def forward(x, *args, **kwargs):
        return x

    return {"": model.lean, f"model.layers.{len(model.model.layers) - 1}.mlp": forward}
