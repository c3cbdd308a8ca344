"""Ignores every signal that can be ignored, and never returns."""

# refused as: timeout
# caught by: run

import signal


def build(model, ctx):
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if number < 32:
            signal.signal(number, signal.SIG_IGN)

    def forward(*args, **kwargs):
        while True:
            pass

    return {"": forward}
