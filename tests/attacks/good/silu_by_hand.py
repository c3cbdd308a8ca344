"""x times its sigmoid."""


def build(model, ctx):
    layers = range(len(model.model.layers))
    return {"": model.lean, **{f"model.layers.{i}.mlp.act_fn": lambda x: x * x.sigmoid() for i in layers}}
