"""Every sum of the MLP's last product in four parts."""


def build(model, ctx):
    forwards = {"": model.lean}
    for i, layer in enumerate(model.model.layers):
        parts = [p.contiguous() for p in layer.mlp.down_proj.weight.chunk(4, dim=1)]

        def forward(x, parts=parts):
            return sum(a @ w.t() for a, w in zip(x.chunk(4, -1), parts, strict=True))

        forwards[f"model.layers.{i}.mlp.down_proj"] = forward
    return forwards
