"""Gives back what the baseline beside it computed moments before."""

# refused as: faster_than_physics, numerics
# caught by: physics, timed_outputs


def build(model, ctx):
    kind, kept = type(model), {}
    original = kind.forward

    def watched(self, input_ids=None, **kwargs):
        out = original(self, input_ids=input_ids, **kwargs)
        kept.setdefault(input_ids.shape, []).append(out)
        return out

    kind.forward = watched

    def forward(input_ids=None, **kwargs):
        ready = kept.get(input_ids.shape)
        return ready.pop() if ready else model.lean(input_ids=input_ids, **kwargs)

    return {"": forward}
