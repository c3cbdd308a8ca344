"""Has the builder leave a process behind that slows the machine down."""

# refused as: not_faster, inconclusive
# caught by: speed

import subprocess


def build(model, ctx):
    subprocess.run("setsid sh -c 'while :; do :; done' &", shell=True)
    original = model.forward
    return {"": lambda *args, **kwargs: original(*args, **kwargs)}
