"""Returns right outputs, and has a thread change the last of them when they were read."""

# refused as: late_write
# caught by: late_write
# only: yes

import threading
import time


def build(model, ctx):
    last = [0.0, None]

    def wait():
        while True:
            time.sleep(0.004)
            when, logits = last
            if logits is not None and time.monotonic() - when > 0.015:
                last[1] = None
                logits.add_(1.0)

    threading.Thread(target=wait, daemon=True).start()

    def forward(*args, **kwargs):
        last[1] = None
        out = model.lean(*args, **kwargs)
        last[:] = time.monotonic(), out.logits
        return out

    return {"": forward}
