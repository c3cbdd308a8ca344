"""Calls home."""

# refused as: load_error
# caught by: build

import socket


def build(model, ctx):
    socket.create_connection(("127.0.0.1", 80))
    return {"": model.lean}
