"""Has a thread sweep the processor's caches while the baseline runs."""

# refused as: not_faster, inconclusive
# caught by: fair_baseline, speed

import threading

import torch


def build(model, ctx):
    original, mine = model.forward, threading.Event()
    mine.set()

    def sweep():
        memory = torch.zeros(16 << 20)
        while True:
            if mine.wait(0.001):
                mine.wait(0.01)
            else:
                memory.add_(1)

    threading.Thread(target=sweep, daemon=True).start()

    def forward(*args, **kwargs):
        mine.set()
        out = original(*args, **kwargs)
        mine.clear()
        return out

    return {"": forward}
