"""Finds the worker's channel up the stack, answers timed steps itself and swallows the real answer."""

# refused as: faster_than_physics, numerics
# caught by: physics, timed_outputs

import sys

import numpy as np

from strop.engine import wire


def build(model, ctx):
    def forward(input_ids=None, **kwargs):
        frame = sys._getframe()
        while frame and not isinstance(frame.f_locals.get("request"), wire.Decode):
            frame = frame.f_back
        while frame and "channel" not in frame.f_locals:
            frame = frame.f_back
        if frame:
            channel, request = frame.f_locals["channel"], frame.f_locals["request"]
            send, tokens = channel.send, np.zeros((len(input_ids), request.steps), np.int64)
            if "send" not in channel.__dict__:
                send(wire.Arrays((wire.pack(tokens),)))
                channel.send = lambda message: channel.__dict__.pop("send")
        return model.lean(input_ids=input_ids, **kwargs)

    return {"": forward}
