"""The owner process: holds the weights, forks workers, and never runs candidate code.

It has torch imported and the model built, so a worker costs one fork. It stays single-threaded,
because a forked child of a threaded process may deadlock.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import shutil
import signal
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from strop import config
from strop.core import StropError
from strop.engine import jail, wire, worker
from strop.engine.driver import Holder

__all__ = ["main"]


def main(argv: list[str]) -> int:
    """Serve the judge: `owner.py HOLDER_MODULE FD ENGINE_JSON`."""
    module, descriptor, text = argv
    jail.die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = wire.Channel(socket.socket(fileno=int(descriptor)))
    settings = msgspec.json.decode(text, type=config.Engine)
    try:
        holder = importlib.import_module(module).hold(
            settings, lambda line: channel.send(wire.Progress(line))
        )
    except StropError as error:
        channel.send(wire.Failed(str(error)))
        return 1
    except Exception as error:
        channel.send(wire.Failed(f"the model could not be loaded: {type(error).__name__}: {error}"))
        raise
    jail.prepare()
    gc.collect()
    gc.freeze()  # no worker then copies pages only because a collection touched them
    channel.send(wire.Report(msgspec.json.encode(holder.description)))
    with contextlib.suppress(wire.Closed, wire.Deadline):
        Owner(holder, channel).serve()
    return 0


class Owner:
    """Forks workers on request and buries them."""

    def __init__(self, holder: Holder, channel: wire.Channel) -> None:
        self.holder = holder
        self.channel = channel
        self.folders: dict[int, Path] = {}

    def serve(self) -> None:
        """Answer until the judge closes the channel; then kill every worker."""
        try:
            while True:
                request, fds = self.channel.request()
                self.channel.send(self.answer(request, fds))
        finally:
            for pid in list(self.folders):
                self.reap(pid)

    def answer(self, request: Any, fds: list[int]) -> wire.Reply:
        """Answer one request."""
        match request:
            case wire.Fork():
                return wire.Done(self.fork(fds[0], request.role, request.private))
            case wire.Reap():
                return wire.Done(self.reap(request.pid))
            case wire.Sample():
                batch = self.holder.sample(request.seed)
                return wire.Arrays(tuple(map(wire.pack, batch.inputs)))
        return wire.Failed(f"an owner does not answer {type(request).__name__}")

    def fork(self, descriptor: int, role: str, private: bool) -> int:
        """Fork a worker on `descriptor`; return its pid."""
        folder = Path(tempfile.mkdtemp(prefix="strop-worker-")) / "candidates"
        folder.mkdir()
        folder.chmod(0o777)

        def run(held: list[str]) -> None:
            sock = socket.socket(fileno=descriptor)
            worker.run(self.holder, sock, folder, role, private, held)

        pid = jail.spawn(run)
        os.close(descriptor)
        self.folders[pid] = folder.parent
        return pid

    def reap(self, pid: int) -> int:
        """Kill a worker's whole process group; return its wait status."""
        folder = self.folders.pop(pid, None)
        if folder is None:
            return 0
        # Kill before waiting: until it is waited for, the pid cannot belong to anybody else.
        status = _ended(pid)
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(pid, signal.SIGKILL)
        _, killed = os.waitpid(pid, 0)
        status = killed if status is None else status
        shutil.rmtree(folder, ignore_errors=True)
        return status


def _ended(pid: int) -> int | None:
    """Return the wait status of a child that ended by itself, leaving it to be waited for."""
    info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if info is None:
        return None
    return info.si_status << 8 if info.si_code == os.CLD_EXITED else info.si_status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
