"""Looks back at the last 24 tokens only."""

# refused as: numerics
# caught by: error


def build(model, ctx):
    def forward(input_ids=None, **kwargs):
        cache = kwargs.get(ctx.cache_name)
        if cache is not None:
            for layer in cache.layers:
                layer.keys, layer.values = layer.keys[:, :, -24:], layer.values[:, :, -24:]
        return model.lean(input_ids=input_ids, **kwargs)

    return {"": forward}
