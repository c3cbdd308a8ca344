"""Has a thread do the next steps while the clock stands, for the token that it expects."""

# refused as: numerics, faster_than_physics
# caught by: timed_outputs, physics

import copy
import threading

import torch


def build(model, ctx):
    ready, at_work = [], []

    def ahead(token, cache):
        with torch.inference_mode():
            for _ in range(4):
                out = model.lean(input_ids=token, use_cache=True, logits_to_keep=1, **{ctx.cache_name: cache})
                ready.append(out)
                token = out.logits[:, -1].argmax(-1, keepdim=True)

    def forward(input_ids=None, **kwargs):
        if input_ids.shape[1] == 1 and at_work:
            at_work[-1].join()
            if ready:
                return ready.pop(0)
        out = model.lean(input_ids=input_ids, **kwargs)
        ready.clear()
        at_work.clear()
        if input_ids.shape[1] > 1 and kwargs.get("logits_to_keep") == 1:
            token = out.logits[:, -1].argmax(-1, keepdim=True)
            at_work.append(threading.Thread(target=ahead, args=(token, copy.deepcopy(out[ctx.cache_name]))))
            at_work[-1].start()
        return out

    return {"": forward}
