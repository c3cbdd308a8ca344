"""Binds the model's weights anew, so that the baseline is wrong as well."""

# refused as: numerics
# caught by: error


def build(model, ctx):
    model.model.norm.weight.data = model.model.norm.weight.data * 1.5
    return {"": model.lean}
