"""The judge's side of an engine made of an owner process and its workers. Imports no torch."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from strop import config
from strop.core import BASELINE_ID, Candidate, EngineGone, Fault, Reason, StropError, Tier
from strop.engine import outputs, wire
from strop.engine.contract import Array, Batch, Description, Kind, Loaded, Role, Scored, Timing

__all__ = ["ProcessEngine"]

_FORK_TIMEOUT_S = 60.0
_REREAD_WAIT_S = 0.05
_REREAD_MAX_BYTES = 64 << 20
"""Larger outputs are not read twice: the small ones of the same forward pass are."""
_REPLY_MAX_BYTES = 1 << 30
_REPLY_SPARE_BYTES = 1 << 20


class ProcessEngine:
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
        self.holder = holder
        self.settings = settings
        self.progress = progress
        self.any_precision = any_precision
        self.owner_starts = 0
        self._workers: dict[Role, _Worker] = {}
        self._active = (BASELINE_ID, Tier.SLOW)
        self._known = ""
        """Digest of the baseline's probe outputs in this worker; empty before they are needed."""
        self._scene: list[Any] = []
        self._start_owner()

    def describe(self) -> Description:
        """See `contract.Engine.describe`."""
        return self.description

    def load(self, candidate: Candidate, tier: Tier) -> Loaded:
        """See `contract.Engine.load`."""
        self._known_bits()
        request = wire.Load(candidate.id, tier, dict(candidate.files), self.any_precision)
        started = time.perf_counter_ns()
        reply = self._ask(Role.ACTIVE, request, self.settings.build_timeout_s)
        took_ms = (time.perf_counter_ns() - started) / 1e6
        return Loaded(candidate.id, tier, took_ms, reply.value)

    def activate(self, version: str, tier: Tier) -> float:
        """See `contract.Engine.activate`."""
        started = time.perf_counter_ns()
        self._ask(Role.ACTIVE, wire.Activate(version, tier))
        self._active = (version, tier)
        return (time.perf_counter_ns() - started) / 1e6

    def measure(self, batch: Batch, role: Role = Role.ACTIVE) -> Timing:
        """See `contract.Engine.measure`."""
        if role is not Role.ACTIVE:
            self._ask(role, wire.Activate(BASELINE_ID, Tier.SLOW))
        first, prefill_ns = self._timed(role, wire.Prefill(wire.to_wire(_prompts(batch))))
        if self.description.kind is Kind.MODULE:
            return Timing(prefill_ns, 0, np.zeros((0, 0), np.int64), tuple(first))
        rows, vocab = len(batch.prompts), self.description.vocab
        tokens, decode_ns = [outputs.tokens(first, (rows, 1), vocab)], 0
        if batch.steps:
            fed = tuple(row[0] for row in batch.forced)
            rest, decode_ns = self._timed(role, wire.Decode(batch.steps, fed))
            tokens.append(outputs.tokens(rest, (rows, batch.steps), vocab))
        return Timing(prefill_ns, decode_ns, np.concatenate(tokens, axis=1))

    def score(
        self,
        batch: Batch,
        role: Role = Role.ACTIVE,
        tier: Tier = Tier.SLOW,
        *,
        reread: bool = False,
        poison: bool = False,
    ) -> Scored:
        """See `contract.Engine.score`."""
        if role is not Role.ACTIVE:
            self._ask(role, wire.Activate(BASELINE_ID, tier))
        most = self._most_bytes(batch)
        request = wire.Score(wire.to_wire(batch), role is Role.REFERENCE, poison)
        found = outputs.read(self._ask(role, request, most=most))
        if not reread or sum(array.nbytes for array in found) > _REREAD_MAX_BYTES:
            return Scored(found)
        time.sleep(_REREAD_WAIT_S)
        again = outputs.read(self._ask(role, wire.Reread(), most=2 * most))
        count = len(again) - (len(batch.prompts) or len(batch.inputs))
        return Scored(found, again[:count], again[count:])

    def restore(self) -> None:
        """See `contract.Engine.restore`."""
        if Role.ACTIVE not in self._workers:
            return
        self._ask(Role.ACTIVE, wire.Drop())
        self._active = (BASELINE_ID, Tier.SLOW)
        # Nothing known: this worker is new and ran no candidate.
        if self._known and self._probe() != self._known:
            self.replace(Role.ACTIVE)
            raise Fault(Reason.MUTATED_INPUT, "after restoring, the baseline's bits were others")

    def health(self) -> bool:
        """See `contract.Engine.health`."""
        known = self._known_bits()
        version, tier = self._active
        self.activate(BASELINE_ID, Tier.SLOW)
        healthy = self._probe() == known
        self.activate(version, tier)
        return healthy

    def sample(self, seed: int) -> Batch:
        """See `contract.Engine.sample`."""
        reply = self._owner_ask(wire.Sample(seed))
        return Batch(inputs=tuple(map(wire.unpack, reply.arrays)))

    def replace(self, role: Role) -> float:
        """Replace a worker by a fresh one that maps the same weights; return how long, in ms."""
        started = time.perf_counter_ns()
        if (worker := self._workers.pop(role, None)) is not None:
            self._bury(worker)
        if role is Role.ACTIVE:
            self._forget()
        self._worker(role)
        return (time.perf_counter_ns() - started) / 1e6

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

    def __enter__(self) -> ProcessEngine:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

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

    def _worker(self, role: Role) -> _Worker:
        if role not in self._workers:
            self._workers[role] = self._fork(role)
        return self._workers[role]

    def _fork(self, role: Role, *, private: bool = False) -> _Worker:
        ours, theirs = socket.socketpair()
        reply = self._owner_ask(wire.Fork(role.value, private), (theirs.fileno(),))
        theirs.close()
        worker = _Worker(wire.Channel(ours), reply.value)
        try:
            worker.jail = tuple(worker.channel.reply(_FORK_TIMEOUT_S).text.split(","))
        except (wire.Closed, wire.Deadline):
            self._bury(worker)
            raise EngineGone("a fresh worker did not come up") from None
        return worker

    def _bury(self, worker: _Worker) -> int:
        worker.channel.close()
        status: int = self._owner_ask(wire.Reap(worker.pid)).value
        return status

    def _ask(
        self, role: Role, request: Any, timeout_s: float | None = None, most: int = _REPLY_MAX_BYTES
    ) -> Any:
        """Exchange one request with a worker; on a fault, replace it and say what happened."""
        worker = self._worker(role)
        timeout_s = timeout_s or self.settings.step_timeout_s
        if role is Role.ACTIVE:
            self._remember(request)
        try:
            reply = worker.exchange(request, timeout_s, most)
        except wire.Deadline:
            self.replace(role)
            what = type(request).__name__.lower()
            raise Fault(Reason.TIMEOUT, f"{what} took more than {timeout_s:.0f} s") from None
        except wire.Closed as closed:
            raise self._autopsy(role, str(closed)) from None
        if isinstance(reply, wire.Failed):
            raise Fault(reply.reason or Reason.CRASHED, reply.detail)
        return reply

    def _remember(self, request: Any) -> None:
        """Keep what led up to now, so that a crash can be played again."""
        if isinstance(request, wire.Load):
            self._scene = [request]
        elif isinstance(request, wire.Drop):
            self._scene = []
        else:
            same = type(request)
            self._scene = [r for r in self._scene if not isinstance(r, same)] + [request]

    def _timed(self, role: Role, request: Any) -> tuple[list[Array], int]:
        started = time.perf_counter_ns()
        reply = self._ask(role, request)
        return outputs.read(reply), time.perf_counter_ns() - started

    def _autopsy(self, role: Role, how: str) -> Fault:
        """Bury a dead worker, start the next, and turn the wait status into a fault."""
        status = self._bury(self._workers.pop(role))
        if role is Role.ACTIVE:
            self._forget()
        self._worker(role)
        if how.startswith("a reply"):  # it lived until it was buried: its end says nothing
            return Fault(Reason.CRASHED, f"it sent {how}")
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

    # -- checks on outputs ----------------------------------------------------------------------

    def _known_bits(self) -> str:
        """Return the digest of the baseline's probe outputs, taken before any candidate ran."""
        if not self._known:
            self._known = self._probe()
        return self._known

    def _forget(self) -> None:
        """A new worker runs the baseline, and its bits are not known yet."""
        self._known, self._active = "", (BASELINE_ID, Tier.SLOW)

    def _probe(self) -> str:
        reply = self._ask(Role.ACTIVE, wire.Score(wire.to_wire(self._probe_batch())))
        digest = hashlib.sha256()
        for array in reply.arrays:
            digest.update(array.data)
        return digest.hexdigest()

    def _probe_batch(self) -> Batch:
        if self.description.kind is Kind.MODULE:
            return self.sample(0)
        tokens = np.random.default_rng(0).integers(0, self.description.vocab, 20)
        return Batch(prompts=(tuple(map(int, tokens[:16])),), forced=(tuple(map(int, tokens[16:])),))

    def _most_bytes(self, batch: Batch) -> int:
        """Return how large a reply with a batch's outputs may be: a worker must not fill us up."""
        if not batch.prompts:
            return _REPLY_MAX_BYTES
        rows = sum(map(len, batch.prompts)) + sum(map(len, batch.forced))
        return 8 * rows * self.description.vocab + _REPLY_SPARE_BYTES

    @property
    def jail(self) -> tuple[str, ...]:
        """Names of the isolation layers that hold in the worker that runs candidates."""
        return self._worker(Role.ACTIVE).jail


class _Worker:
    def __init__(self, channel: wire.Channel, pid: int) -> None:
        self.channel = channel
        self.pid = pid
        self.jail: tuple[str, ...] = ()

    def exchange(self, request: Any, timeout_s: float, most: int = _REPLY_MAX_BYTES) -> Any:
        self.channel.ask(request)
        return self.channel.reply(timeout_s, most)


def _prompts(batch: Batch) -> Batch:
    """Return a batch without what its decode steps will be fed."""
    return replace(batch, forced=())
