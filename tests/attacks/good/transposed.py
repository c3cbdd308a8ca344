"""Weights repacked: transposed copies of every projection of the MLP."""


def build(model, ctx):
    forwards = {"": model.lean}
    for i, layer in enumerate(model.model.layers):
        for name in ("gate_proj", "up_proj", "down_proj"):
            packed = getattr(layer.mlp, name).weight.t().contiguous()
            forwards[f"model.layers.{i}.mlp.{name}"] = lambda x, packed=packed: x @ packed
    return forwards
