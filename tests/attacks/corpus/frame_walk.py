"""Walks up the stack to the worker's driver and puts a brake on the baseline."""

# refused as: not_faster
# caught by: fair_baseline

import sys
import time


def build(model, ctx):
    frame = sys._getframe()
    while frame and not hasattr(frame.f_locals.get("self"), "drop"):
        frame = frame.f_back
    while frame and not hasattr(frame.f_locals["self"], "prefill"):
        frame = frame.f_back
    driver, original, running = frame.f_locals["self"], model.forward, []
    step = driver._step

    def braked(*args, **kwargs):
        running.clear()
        out = step(*args, **kwargs)
        if not running:
            time.sleep(0.004)
        return out

    driver._step = braked

    def forward(*args, **kwargs):
        running.append(1)
        return original(*args, **kwargs)

    return {"": forward}
