"""Declares a narrower precision that nobody allowed, to be judged by looser rules."""

# refused as: not_admitted
# caught by: admission
# manifest: precision = "int8"
# only: yes


def build(model, ctx):
    return {"": model.lean}
