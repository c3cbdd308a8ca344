"""Long prompts in two parts."""

import torch


def build(model, ctx):
    def forward(input_ids=None, **kwargs):
        count = input_ids.shape[1]
        if count < 16 or kwargs.get("attention_mask") is not None:
            return model.lean(input_ids=input_ids, **kwargs)
        first = model.lean(input_ids=input_ids[:, : count // 2], **kwargs)
        kwargs[ctx.cache_name] = first[ctx.cache_name]
        second = model.lean(input_ids=input_ids[:, count // 2 :], **kwargs)
        if kwargs.get("logits_to_keep", 0) == 0:
            second.logits = torch.cat((first.logits, second.logits), 1)
        return second

    return {"": forward}
