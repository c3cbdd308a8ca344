"""Does decode steps in the prefill, where they count once, and replays them."""

# refused as: numerics, faster_than_physics
# caught by: timed_outputs, physics

import copy


def build(model, ctx):
    ready = []

    def forward(input_ids=None, **kwargs):
        decode = input_ids.shape[1] == 1
        if decode and ready:
            return ready.pop(0)
        out = model.lean(input_ids=input_ids, **kwargs)
        ready.clear()
        if not decode and kwargs.get("logits_to_keep") == 1 and not kwargs.get("attention_mask"):
            kwargs[ctx.cache_name] = copy.deepcopy(out[ctx.cache_name])
            for _ in range(4):
                token = (ready[-1] if ready else out).logits[:, -1].argmax(-1, keepdim=True)
                ready.append(model.lean(input_ids=token, **kwargs))
        return out

    return {"": forward}
