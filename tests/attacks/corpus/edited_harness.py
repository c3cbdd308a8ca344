"""Patches the driver: exams by the book, timed steps without the last layer."""

# refused as: numerics
# caught by: timed_outputs

from strop.engine.torch.causal_lm import CausalLM


def build(model, ctx):
    decode, timed = CausalLM.decode, []

    def patched(self, *args):
        timed.append(1)
        try:
            return decode(self, *args)
        finally:
            timed.pop()

    CausalLM.decode = patched

    def forward(*args, **kwargs):
        out = model.lean(*args, **kwargs)
        if timed and model.model.layers:
            out.logits = out.logits.roll(1, -1)
        return out

    return {"": forward}
