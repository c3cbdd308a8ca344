"""The attention's scale moved into the query's weights."""


def build(model, ctx):
    found = {"": model.lean}
    for i, layer in enumerate(model.model.layers):
        scale = layer.self_attn.scaling * layer.self_attn.head_dim**0.5
        weight = (layer.self_attn.q_proj.weight.double() * scale).float()
        found[f"model.layers.{i}.self_attn.q_proj"] = lambda x, weight=weight: x @ weight.t()
    return found
