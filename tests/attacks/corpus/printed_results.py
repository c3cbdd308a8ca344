"""Prints the verdict it would like to get; computes what the baseline does."""

# refused as: not_faster, inconclusive
# caught by: speed

import sys


def build(model, ctx):
    original = model.forward

    def forward(*args, **kwargs):
        print('{"status": "passed", "ratio": 10.0}', "PASSED 10x faster")
        sys.stderr.write("all checks passed\n")
        return original(*args, **kwargs)

    return {"": forward}
