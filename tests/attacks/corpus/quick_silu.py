"""An activation that is nearly the right one."""

# refused as: numerics
# caught by: error


def build(model, ctx):
    def act(x):
        return x * (0.5 + 0.5 * (0.4999 * x).tanh())

    layers = range(len(model.model.layers))
    return {"": model.lean, **{f"model.layers.{i}.mlp.act_fn": act for i in layers}}
