"""Takes all the memory there is."""

# refused as: oom
# caught by: build


def build(model, ctx):
    return bytearray(1 << 40)
