"""The verbs of an engine whose workers answer over channels, whoever started them. Imports no torch."""

from __future__ import annotations

import hashlib
import time
from abc import abstractmethod
from dataclasses import replace
from typing import Any, Self

import numpy as np

from strop import config
from strop.core import BASELINE_ID, Candidate, Fault, Reason, Tier
from strop.engine import outputs, wire
from strop.engine.contract import Array, Batch, Description, Kind, Loaded, Role, Scored, Timing

__all__ = ["REPLY_MAX_BYTES", "RemoteEngine", "Worker"]

_REREAD_WAIT_S = 0.05
_REREAD_MAX_BYTES = 64 << 20
"""Larger outputs are not read twice: the small ones of the same forward pass are."""
REPLY_MAX_BYTES = 1 << 30
_REPLY_SPARE_BYTES = 1 << 20


class Worker:
    """Our end of a channel, and who answers at the other."""

    def __init__(self, channel: wire.Channel, pid: int, jail: tuple[str, ...] = ()) -> None:
        self.channel = channel
        self.pid = pid
        self.jail = jail
        """Isolation layers that hold around it."""

    def exchange(self, request: Any, timeout_s: float, most: int = REPLY_MAX_BYTES) -> Any:
        """Ask, and wait for the reply of at most `most` bytes."""
        self.channel.ask(request)
        return self.channel.reply(timeout_s, most)


class RemoteEngine:
    """Satisfies `strop.engine.contract.Engine`, once a subclass opens and buries its workers."""

    description: Description

    def __init__(self, settings: config.Engine, *, any_precision: bool) -> None:
        self.settings = settings
        self.any_precision = any_precision
        self._workers: dict[Role, Worker] = {}
        self._active = (BASELINE_ID, Tier.SLOW)
        self._known = ""
        """Digest of the baseline's probe outputs in this worker; empty before they are needed."""
        self._scene: list[Any] = []

    # -- for the subclass -----------------------------------------------------------------------

    @abstractmethod
    def _open(self, role: Role) -> Worker:
        """Start a worker for a role, or connect to it."""

    @abstractmethod
    def _bury(self, worker: Worker) -> int:
        """Close a worker and end it; return its wait status."""

    @abstractmethod
    def _blame(self, role: Role, status: int) -> Fault:
        """Turn the end of a worker into the fault of what it ran."""

    @abstractmethod
    def sample(self, seed: int) -> Batch:
        """See `contract.Engine.sample`."""

    @abstractmethod
    def revive(self) -> None:
        """See `contract.Engine.revive`."""

    @abstractmethod
    def close(self) -> None:
        """See `contract.Engine.close`."""

    # -- the verbs ------------------------------------------------------------------------------

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

    def replace(self, role: Role) -> float:
        """Replace a worker by a fresh one that maps the same weights; return how long, in ms."""
        started = time.perf_counter_ns()
        if (worker := self._workers.pop(role, None)) is not None:
            self._bury(worker)
        if role is Role.ACTIVE:
            self._forget()
        self._worker(role)
        return (time.perf_counter_ns() - started) / 1e6

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    @property
    def jail(self) -> tuple[str, ...]:
        """Names of the isolation layers that hold in the worker that runs candidates."""
        return self._worker(Role.ACTIVE).jail

    # -- exchanges ------------------------------------------------------------------------------

    def _worker(self, role: Role) -> Worker:
        if role not in self._workers:
            self._workers[role] = self._open(role)
        return self._workers[role]

    def _ask(
        self, role: Role, request: Any, timeout_s: float | None = None, most: int = REPLY_MAX_BYTES
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
        """Bury a dead worker, start the next, and turn how it ended into a fault."""
        status = self._bury(self._workers.pop(role))
        if role is Role.ACTIVE:
            self._forget()
        self._worker(role)
        if how.startswith("a reply"):  # it lived until it was buried: its end says nothing
            return Fault(Reason.CRASHED, f"it sent {how}")
        return self._blame(role, status)

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
            return REPLY_MAX_BYTES
        rows = sum(map(len, batch.prompts)) + sum(map(len, batch.forced))
        return 8 * rows * self.description.vocab + _REPLY_SPARE_BYTES


def _prompts(batch: Batch) -> Batch:
    """Return a batch without what its decode steps will be fed."""
    return replace(batch, forced=())
