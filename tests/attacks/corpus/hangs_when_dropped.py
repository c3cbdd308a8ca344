"""Never lets go: its last reference waits for ever."""

# refused as: timeout
# caught by: restore

import time


class Holder:
    def __init__(self, forward):
        self.forward = forward

    def __call__(self, *args, **kwargs):
        return self.forward(*args, **kwargs)

    def __del__(self):
        while True:
            time.sleep(1)


def build(model, ctx):
    return {"": Holder(model.lean)}
