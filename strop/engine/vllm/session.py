"""A session: this worker, lent to a judge until it hangs up."""

from __future__ import annotations

import socket
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from strop.core import BASELINE_ID, Reason
from strop.engine import wire
from strop.engine.server import Server
from strop.engine.vllm.describe import describe
from strop.engine.vllm.driver import VllmDriver

__all__ = ["serve"]

_DRIVER = "_strop_driver"
_CONNECT_S = 10.0


def serve(worker: Any, path: str) -> str:
    """Serve the judge at the other end of a Unix socket; return the id of the live version.

    With tensor parallelism the first rank alone talks to the judge, every rank answers every
    request, and the judge hears a failure when one of them fails.
    However the session ends, what is left is the baseline, or the version that the judge kept.
    """
    ranks = _Ranks()
    with tempfile.TemporaryDirectory(prefix="strop-") as folder:
        server = _VllmServer(worker, Path(folder) / "candidates")
        channel = _connected(path) if ranks.first else None
        try:
            while (request := ranks.shared(_next(channel))) is not None:
                reply = ranks.agreed(server.reply(request))
                if channel is not None:
                    with suppress(wire.Closed, wire.Deadline):
                        channel.send(reply)
        finally:
            live = server.leave()
            if channel is not None:
                channel.close()
    return live


class _VllmServer(Server):
    """A server whose driver is made at the first request and stays with the worker."""

    def __init__(self, worker: Any, folder: Path) -> None:
        self.worker = worker
        super().__init__(getattr(worker, _DRIVER, None), folder)  # type: ignore[arg-type]

    def leave(self) -> str:
        """Hand the model back; return the id of the version that serves from now on."""
        driver: VllmDriver | None = getattr(self.worker, _DRIVER, None)
        return driver.leave() if driver else BASELINE_ID

    def answer(self, request: Any) -> wire.Reply:
        """Answer one request; let through what the driver raises."""
        driver: Any = self.driver
        if isinstance(request, wire.Describe):
            if driver is None or request.fast_layers not in (0, driver.fast):
                self.driver = VllmDriver(self.worker, request.fast_layers)
                setattr(self.worker, _DRIVER, self.driver)
            self.driver.drop()  # a version kept by the session before
            return wire.Report(msgspec.json.encode(describe(self.worker, self.driver)))
        if driver is None:
            raise RuntimeError("a session begins with Describe")
        if isinstance(request, wire.Digest):
            return wire.Done(text=driver.model.digest())
        if isinstance(request, wire.Keep):
            driver.keep()
            return wire.Done()
        return super().answer(request)


class _Ranks:
    """The workers of one tensor-parallel group; a group of one talks to nobody."""

    def __init__(self) -> None:
        from vllm.distributed.parallel_state import get_tp_group

        self.group = get_tp_group()

    @property
    def first(self) -> bool:
        """Whether this rank talks to the judge."""
        return bool(self.group.is_first_rank)

    def shared(self, request: Any) -> Any:
        """Return the first rank's request on every rank."""
        return request if self.group.world_size == 1 else self.group.broadcast_object(request, src=0)

    def agreed(self, reply: wire.Reply) -> wire.Reply:
        """Return the reply, or the first failure of any rank."""
        if self.group.world_size == 1:
            return reply
        import torch.distributed

        failed = reply if isinstance(reply, wire.Failed) else None
        found: list[wire.Failed | None] = [None] * self.group.world_size
        torch.distributed.all_gather_object(found, failed, group=self.group.cpu_group)
        return next((other for other in found if other is not None), reply)


def _connected(path: str) -> wire.Channel:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(_CONNECT_S)
    sock.connect(path)
    return wire.Channel(sock)


def _next(channel: wire.Channel | None) -> Any:
    """Return the judge's next request; None when it has hung up, and on the other ranks."""
    if channel is None:
        return None
    try:
        return channel.request()[0]
    except (wire.Closed, wire.Deadline):
        return None
    except msgspec.DecodeError:
        traceback.print_exc()
        channel.send(wire.Failed("a request that this version of strop does not know", Reason.CRASHED))
        return None
