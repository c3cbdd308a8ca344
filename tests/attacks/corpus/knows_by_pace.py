"""Tells exams from timed runs by the pause that the judge makes after an answer."""

# refused as: numerics, nondeterministic
# caught by: timed_outputs, repeat, poison, error

import time


def build(model, ctx):
    last, quick = [0.0], [0]

    def forward(*args, **kwargs):
        started = time.monotonic()
        quick[0] = quick[0] + 1 if started - last[0] < 0.045 else 0
        out = model.lean(*args, **kwargs)
        if quick[0] > 40:
            out.logits = out.logits.flip(-1)
        last[0] = time.monotonic()
        return out

    return {"": forward}
