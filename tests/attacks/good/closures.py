"""The lean forward behind three wrappers."""


def build(model, ctx):
    def wrapped(inner):
        return lambda *args, **kwargs: inner(*args, **kwargs)

    return {"": wrapped(wrapped(wrapped(model.lean)))}
