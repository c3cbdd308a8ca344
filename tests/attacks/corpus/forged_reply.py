"""Sends a well-formed message of success under a number that it guesses."""

# refused as: crashed
# caught by: build

import os
import socket
import stat

from strop.engine import wire


def build(model, ctx):
    for fd in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                channel = wire.Channel(socket.socket(fileno=os.dup(fd)))
                channel.number = 1
                channel.send(wire.Done(1, "built"))
        except OSError:
            pass
    return {"": model.lean}
