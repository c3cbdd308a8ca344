"""The worker process: serves one channel, runs the candidate's code, and may die at any moment."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
from pathlib import Path
from typing import Any, NoReturn

from strop.engine import builder, jail, wire
from strop.engine.driver import Holder
from strop.engine.server import Server

__all__ = ["run"]


def run(
    holder: Holder, sock: socket.socket, folder: Path, role: str, private: bool, held: list[str]
) -> NoReturn:
    """Enter the jail, say which layers hold, and serve until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _redirect_output(folder)
    _live_in(folder)
    held += jail.enter(folder)
    jail.die_with_parent()  # a change of user clears it
    build = builder.attach(folder, held)
    server = _WorkerServer(holder.driver(role, private), folder)
    builder.close_all_but({0, 1, 2, sock.fileno(), build})
    held += jail.seal(folder)
    channel = wire.Channel(sock)
    channel.send(wire.Done(os.getpid(), ",".join(held)))
    code = 1
    try:
        server.serve(channel)
    except (wire.Closed, wire.Deadline):
        code = 0
    finally:
        # No interpreter shutdown: a candidate's threads and exit handlers must not run.
        os._exit(code)


def _redirect_output(folder: Path) -> None:
    log = os.open(folder / "output.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)


def _live_in(folder: Path) -> None:
    """Have every cache and every temporary file in the only folder that can be written to."""
    home = str(folder)
    tempfile.tempdir = home
    names = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR")
    os.environ.update(dict.fromkeys((*names, "TRITON_CACHE_DIR", "CUDA_CACHE_PATH"), home))
    os.environ["USER"] = os.environ["LOGNAME"] = "nobody"


class _WorkerServer(Server):
    """A server whose weights are sealed pages, so that it can say which of them it copied."""

    def answer(self, request: Any) -> wire.Reply:
        """Answer one request; let through what the driver raises."""
        if isinstance(request, wire.Touched):
            return wire.Done(_touched_bytes())
        return super().answer(request)


def _touched_bytes() -> int:
    """Pages of the sealed weights that this process has copied by writing to them."""
    total, ours = 0, False
    with open("/proc/self/smaps", encoding="utf-8") as maps:
        for line in maps:
            if "memfd:strop" in line:
                ours = True
            elif ours and line.startswith("Anonymous:"):
                total, ours = total + 1024 * int(line.split()[1]), False
    return total
