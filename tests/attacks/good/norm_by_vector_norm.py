"""The mean of squares from a vector norm."""

import torch


def build(model, ctx):
    def norm(m):
        size = m.weight.numel()

        def forward(x):
            squares = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square() / size
            return x * torch.rsqrt(squares + m.variance_epsilon) * m.weight

        return forward

    names = dict(model.named_modules())
    return {"": model.lean, **{n: norm(m) for n, m in names.items() if n.endswith("norm")}}
