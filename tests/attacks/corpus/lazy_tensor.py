"""Returns a tensor that computes itself only for those who look closely."""

# refused as: numerics
# caught by: timed_outputs

import torch


class Lazy(torch.Tensor):
    def argmax(self, *args, **kwargs):
        return torch.zeros((self.shape[0], 1), dtype=torch.int64)

    def __getitem__(self, key):
        return super().__getitem__(key).as_subclass(Lazy)


def build(model, ctx):
    def forward(*args, **kwargs):
        out = model.lean(*args, **kwargs)
        out.logits = out.logits.as_subclass(Lazy)
        return out

    return {"": forward}
