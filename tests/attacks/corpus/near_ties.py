"""Declared int8, allowed: swaps close tokens in the rows of a prompt, where nobody samples."""

# refused as: quality
# caught by: greedy
# policy: precision
# manifest: precision = "int8"
# only: yes


def build(model, ctx):
    def forward(*args, **kwargs):
        out = model.lean(*args, **kwargs)
        if kwargs.get("logits_to_keep") == 1:
            return out
        value, index = out.logits.topk(2)
        swap = (value[..., :1] - value[..., 1:]) < 0.5
        out.logits.scatter_(-1, index, value.flip(-1).where(swap, value))
        return out

    return {"": forward}
