"""Behaves for as long as a warm-up lasts, then returns what it returned before."""

# refused as: numerics, nonfinite, nondeterministic, late_write
# caught by: repeat, poison, error, timed_outputs


def build(model, ctx):
    calls, kept = [0], {}

    def forward(*args, **kwargs):
        calls[0] += 1
        out = model.lean(*args, **kwargs)
        if calls[0] > 20 and out.logits.shape in kept:
            out.logits = kept[out.logits.shape]
        kept[out.logits.shape] = out.logits
        return out

    return {"": forward}
