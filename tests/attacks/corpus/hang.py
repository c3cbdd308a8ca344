"""Never returns."""

# refused as: timeout
# caught by: run


def build(model, ctx):
    def forward(*args, **kwargs):
        while True:
            pass

    return {"": forward}
