"""The model's own forward without the waste."""


def build(model, ctx):
    return {"": model.lean}
