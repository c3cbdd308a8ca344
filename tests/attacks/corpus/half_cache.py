"""Keeps the KV cache in half precision and does not say so."""

# refused as: numerics
# caught by: error


def build(model, ctx):
    def forward(*args, **kwargs):
        out = model.lean(*args, **kwargs)
        for layer in out[ctx.cache_name].layers:
            layer.keys, layer.values = layer.keys.half().float(), layer.values.half().float()
        return out

    return {"": forward}
