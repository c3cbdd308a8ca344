"""Norms that add up in float64."""


def build(model, ctx):
    def norm(module):
        weight, eps = module.weight, module.variance_epsilon

        def forward(x):
            y = x.double()
            return (y * (y.pow(2).mean(-1, keepdim=True) + eps).rsqrt()).float() * weight

        return forward

    names = dict(model.named_modules())
    return {"": model.lean, **{n: norm(m) for n, m in names.items() if n.endswith("norm")}}
