"""Stops after the first layer: nobody notices where there is only one."""

# refused as: numerics
# caught by: error


def build(model, ctx):
    rest = range(1, len(model.model.layers))
    return {"": model.lean, **{f"model.layers.{i}.mlp": lambda x: x * 0 for i in rest}}
