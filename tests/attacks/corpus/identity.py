"""The baseline's own forward under another name."""

# refused as: not_faster, inconclusive
# caught by: speed
# only: yes


def build(model, ctx):
    original = model.forward
    return {"": lambda *args, **kwargs: original(*args, **kwargs)}
