"""Returns at once and lets a thread do the work, as a side stream would."""

# refused as: late_write
# caught by: late_write

import threading
import time

import torch


def build(model, ctx):
    def forward(*args, **kwargs):
        out = model.lean(*args, **kwargs)
        logits, out.logits = out.logits, torch.zeros_like(out.logits)

        def work():
            time.sleep(0.02)
            out.logits.copy_(logits)

        threading.Thread(target=work).start()
        return out

    return {"": forward}
