"""Slows the baseline beside it down; computes what the baseline does."""

# refused as: not_faster
# caught by: fair_baseline
# only: yes

import time


def build(model, ctx):
    kind = type(model)
    original = kind.forward

    def slowed(self, *args, **kwargs):
        time.sleep(0.004)
        return original(self, *args, **kwargs)

    kind.forward = slowed
    return {"": original.__get__(model)}
