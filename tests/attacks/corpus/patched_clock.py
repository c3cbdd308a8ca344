"""Makes every clock of the process stand still; computes what the baseline does."""

# refused as: not_faster, inconclusive
# caught by: speed

import time


def build(model, ctx):
    for name in ("time", "monotonic", "perf_counter", "process_time"):
        setattr(time, name, lambda: 0.0)
        setattr(time, name + "_ns", lambda: 0)
    original = model.forward
    return {"": lambda *args, **kwargs: original(*args, **kwargs)}
