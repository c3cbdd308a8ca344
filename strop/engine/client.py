"""The judge's side of an engine made of an owner process and its workers. Imports no torch."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import msgspec

from strop import config
from strop.core import EngineGone, Fault, Reason, StropError
from strop.engine import wire
from strop.engine.contract import Batch, Description, Role
from strop.engine.remote import RemoteEngine, Worker

__all__ = ["ProcessEngine"]

_FORK_TIMEOUT_S = 60.0


class ProcessEngine(RemoteEngine):
    """One owner with the weights; a worker for candidates and clean ones for judging.

    Satisfies `strop.engine.contract.Engine`.
    """

    def __init__(
        self,
        holder: str,
        settings: config.Engine,
        progress: Callable[[str], None] = lambda line: None,
        *,
        any_precision: bool = False,
    ) -> None:
        """Start the owner and wait until it holds the weights.

        Args:
            holder: module whose `hold(settings, progress)` loads the model.
            settings: which model, and how.
            progress: shown a line now and then while the model loads.
            any_precision: whether candidates may change the precision.

        Raises:
            StropError: the model is unknown or cannot be loaded.
            EngineGone: the owner died while loading.
        """
        super().__init__(settings, any_precision=any_precision)
        self.holder = holder
        self.progress = progress
        self.owner_starts = 0
        self._start_owner()

    def sample(self, seed: int) -> Batch:
        """See `contract.Engine.sample`."""
        reply = self._owner_ask(wire.Sample(seed))
        return Batch(inputs=tuple(map(wire.unpack, reply.arrays)))

    def close(self) -> None:
        """See `contract.Engine.close`."""
        for worker in self._workers.values():
            worker.channel.close()
        self._workers.clear()
        self._owner.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    # -- the owner ------------------------------------------------------------------------------

    def _start_owner(self) -> None:
        ours, theirs = socket.socketpair()
        self._log = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - lives as long as the owner
        text = msgspec.json.encode(self.settings).decode()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "strop.engine.owner", self.holder, str(theirs.fileno()), text],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env={**os.environ, "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"},
        )
        theirs.close()
        self._owner = wire.Channel(ours)
        self._workers.clear()
        self._forget()
        self.owner_starts += 1
        self.description = self._loaded()

    def _loaded(self) -> Description:
        until = time.monotonic() + self.settings.load_timeout_s
        while True:
            try:
                reply = self._owner.reply(until - time.monotonic())
            except wire.Closed:
                raise EngineGone(f"the engine died while loading: {self._last_words()}") from None
            except wire.Deadline:
                self.close()
                raise StropError(
                    f"the model was not loaded in {self.settings.load_timeout_s:.0f} s; "
                    "raise engine.load_timeout_s"
                ) from None
            match reply:
                case wire.Progress():
                    self.progress(reply.text)
                case wire.Report():
                    return msgspec.json.decode(reply.description, type=Description)
                case _:
                    self.close()
                    raise StropError(getattr(reply, "detail", "the engine could not start"))

    def _last_words(self) -> str:
        self._process.wait(10)
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 2000))
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit status {self._process.returncode}"

    def _owner_ask(self, request: Any, fds: tuple[int, ...] = ()) -> Any:
        try:
            self._owner.ask(request, fds=fds)
            return self._owner.reply(_FORK_TIMEOUT_S)
        except (wire.Closed, wire.Deadline):
            self._process.kill()
            self._workers.clear()
            raise EngineGone(f"the engine's owner died: {self._last_words()}") from None

    def revive(self) -> None:
        """Start the owner anew after `EngineGone`; the weights are loaded again."""
        with contextlib.suppress(OSError):
            self.close()
        self._start_owner()

    # -- workers --------------------------------------------------------------------------------

    def _open(self, role: Role) -> Worker:
        return self._fork(role)

    def _fork(self, role: Role, *, private: bool = False) -> Worker:
        ours, theirs = socket.socketpair()
        reply = self._owner_ask(wire.Fork(role.value, private), (theirs.fileno(),))
        theirs.close()
        worker = Worker(wire.Channel(ours), reply.value)
        try:
            worker.jail = tuple(worker.channel.reply(_FORK_TIMEOUT_S).text.split(","))
        except (wire.Closed, wire.Deadline):
            self._bury(worker)
            raise EngineGone("a fresh worker did not come up") from None
        return worker

    def _bury(self, worker: Worker) -> int:
        worker.channel.close()
        status: int = self._owner_ask(wire.Reap(worker.pid)).value
        return status

    def _blame(self, role: Role, status: int) -> Fault:
        if not os.WIFSIGNALED(status):
            code = os.waitstatus_to_exitcode(status)
            return Fault(Reason.CRASHED, f"the worker exited with status {code}")
        name = signal.Signals(os.WTERMSIG(status)).name
        if name in ("SIGSEGV", "SIGBUS") and self._wrote_to_weights():
            return Fault(Reason.MUTATED_INPUT, f"it wrote to the weights ({name})")
        return Fault(Reason.CRASHED, f"the worker died of {name}")

    def _wrote_to_weights(self) -> bool:
        """Play the fatal exchange again on a private copy of the weights and see if they change."""
        worker = self._fork(Role.ACTIVE, private=True)
        try:
            for request in self._scene:
                worker.exchange(request, self.settings.build_timeout_s)
            touched: int = worker.exchange(wire.Touched(), self.settings.step_timeout_s).value
            return touched > 0
        except (wire.Closed, wire.Deadline):
            return False
        finally:
            self._bury(worker)
