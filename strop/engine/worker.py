"""The worker process: serves one channel, runs the candidate's code, and may die at any moment."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import traceback
from pathlib import Path
from typing import Any, NoReturn

from strop.core import Fault, Reason
from strop.engine import builder, jail, wire
from strop.engine.candidate_package import write_files
from strop.engine.driver import Driver, Holder
from strop.engine.poison import garbage_in_new_memory

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
    server = _Server(holder.driver(role, private), folder)
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


class _Server:
    def __init__(self, driver: Driver, folder: Path) -> None:
        self.driver = driver
        self.folder = folder

    def serve(self, channel: wire.Channel) -> None:
        while True:
            request, _ = channel.request()
            try:
                reply = self.answer(request)
            except Fault as fault:
                reply = wire.Failed(fault.detail, fault.reason)
            except BaseException as error:
                reply = _explain(request, error)
            channel.send(reply)

    def answer(self, request: Any) -> wire.Reply:
        driver = self.driver
        match request:
            case wire.Load():
                return wire.Done(self._load(request))
            case wire.Activate():
                driver.activate(request.version, request.tier)
                return wire.Done()
            case wire.Prefill():
                return _arrays(driver.prefill(wire.from_wire(request.batch)))
            case wire.Decode():
                return _arrays(driver.decode(request.steps, request.first))
            case wire.Score():
                with garbage_in_new_memory(request.poison):
                    return _arrays(driver.score(wire.from_wire(request.batch), request.whole))
            case wire.Reread():
                return _arrays(driver.reread())
            case wire.Drop():
                driver.drop()
                return wire.Done()
            case wire.Touched():
                return wire.Done(_touched_bytes())
        raise TypeError(f"a worker does not answer {type(request).__name__}")

    def _load(self, request: wire.Load) -> int:
        folder = self.folder / f"{request.version[:16]}-{request.tier.value}"
        write_files(folder, request.files)
        return self.driver.load(folder, request.version, request.tier, request.precision)


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


def _arrays(arrays: list[Any]) -> wire.Arrays:
    return wire.Arrays(tuple(map(wire.pack, arrays)))


def _explain(request: Any, error: BaseException) -> wire.Failed:
    """Name the fault: out of memory, a build that failed, or a step that raised."""
    traceback.print_exception(error)
    text = f"{type(error).__name__}: {error}".strip().splitlines()[0][:500]
    if isinstance(error, MemoryError) or "allocate memory" in str(error).lower():
        return wire.Failed(text, Reason.OOM)
    if isinstance(request, wire.Load):
        return wire.Failed(text + _place(error), Reason.LOAD_ERROR)
    return wire.Failed(text + _place(error), Reason.CRASHED)


def _place(error: BaseException) -> str:
    """Say which line of the candidate raised, when one did."""
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        if "/candidates/" in frame.filename:
            return f" ({Path(frame.filename).name}, line {frame.lineno})"
    return ""
