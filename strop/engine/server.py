"""Answers the judge's requests with a driver, in whatever process the driver lives."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

from strop.core import Fault, Reason
from strop.engine import wire
from strop.engine.candidate_package import write_files
from strop.engine.driver import Driver
from strop.engine.poison import garbage_in_new_memory

__all__ = ["Server"]


class Server:
    """Serves one driver; a fault of the candidate becomes a reply, never an exception."""

    def __init__(self, driver: Driver, folder: Path) -> None:
        self.driver = driver
        self.folder = folder

    def serve(self, channel: wire.Channel) -> None:
        """Answer until the other end closes.

        Raises:
            wire.Closed: it did.
            wire.Deadline: it no longer takes what it asked for.
        """
        while True:
            request, _ = channel.request()
            reply = self.reply(request)
            # Looked up only now: the attack that replaces it has to stay as strong as it can be.
            channel.send(reply)

    def reply(self, request: Any) -> wire.Reply:
        """Answer one request, whatever happens meanwhile."""
        try:
            return self.answer(request)
        except Fault as fault:
            return wire.Failed(fault.detail, fault.reason)
        except BaseException as error:
            return _explain(request, error)

    def answer(self, request: Any) -> wire.Reply:
        """Answer one request; let through what the driver raises."""
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
        raise TypeError(f"a worker does not answer {type(request).__name__}")

    def _load(self, request: wire.Load) -> int:
        folder = self.folder / f"{request.version[:16]}-{request.tier.value}"
        write_files(folder, request.files)
        return self.driver.load(folder, request.version, request.tier, request.precision)


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
