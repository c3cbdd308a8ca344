"""Right but for one token in a thousand, after which it says something else."""

# refused as: numerics
# caught by: error, greedy, perplexity


def build(model, ctx):
    def forward(input_ids=None, **kwargs):
        out = model.lean(input_ids=input_ids, **kwargs)
        rows = out.logits.shape[1]
        hit = (input_ids[:, -rows:] % 128 == 5).nonzero()
        for batch, row in hit.tolist():
            top = out.logits[batch, row].topk(2).indices
            out.logits[batch, row, top] = out.logits[batch, row, top.flip(0)]
        return out

    return {"": forward}
