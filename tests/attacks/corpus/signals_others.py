"""Looks for processes that it could stop."""

# refused as: not_faster, inconclusive
# caught by: speed

import os
import signal


def build(model, ctx):
    reached = 0
    for pid in range(1, 1 << 15):
        try:
            os.kill(pid, signal.SIGCONT)  # stops nobody, for the day when the jail has a hole
            reached += 1
        except OSError:
            pass
    if reached > 4:  # itself and what shares its walls: their first process, the builder
        raise SystemExit(f"{reached} processes could be signalled")
    original = model.forward
    return {"": lambda *args, **kwargs: original(*args, **kwargs)}
