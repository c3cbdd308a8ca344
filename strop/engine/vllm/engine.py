"""The judge's side of a vLLM server: started once, lent for each candidate, and serving in between."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

from strop import config
from strop.core import BASELINE_ID, Candidate, EngineGone, Fault, Reason, StropError, Tier
from strop.engine import wire
from strop.engine.client import ProcessEngine
from strop.engine.contract import Batch, Description, Role, Scored, Timing
from strop.engine.remote import RemoteEngine, Worker
from strop.engine.vllm.command import parse
from strop.engine.vllm.server import Session, VllmServer

__all__ = ["VllmEngine"]

_REFERENCE = "strop.engine.torch.holder"


class VllmEngine(RemoteEngine):
    """The user's own server; candidates run in its workers, the reference in a torch engine.

    A session lasts from a candidate's load to its restore. Between sessions the door is open and
    the requests that waited are served, by the baseline. Candidates run in the server's process
    without a jail, so only trusted code gets here. Satisfies `strop.engine.contract.Engine`.
    """

    def __init__(
        self,
        settings: config.Engine,
        progress: Callable[[str], None] = lambda line: None,
        *,
        any_precision: bool = False,
    ) -> None:
        """Start the server and look at its model.

        Raises:
            StropError: the command is no launch of vLLM, or the server does not come up.
        """
        super().__init__(settings, any_precision=any_precision)
        self.served = parse(settings.command)
        self.progress = progress
        self.server_starts = 0
        self._session: Session | None = None
        self._reference: ProcessEngine | None = None
        self._digest = ""
        self._server = self._started()
        try:
            self._worker(Role.ACTIVE)
            self._release()
        except BaseException:
            self.close()
            raise

    # -- what differs from engines that strop owns ------------------------------------------------

    def measure(self, batch: Batch, role: Role = Role.ACTIVE) -> Timing:
        """See `contract.Engine.measure`. One server has one model: BASELINE runs where ACTIVE does."""
        if role is Role.ACTIVE:
            return super().measure(batch, role)
        with self._baseline(Tier.SLOW):
            return super().measure(batch, Role.ACTIVE)

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
        if role is Role.REFERENCE:
            return self._torch().score(batch, role, tier, reread=reread, poison=poison)
        if role is Role.ACTIVE:
            return super().score(batch, role, tier, reread=reread, poison=poison)
        with self._baseline(tier):
            return super().score(batch, Role.ACTIVE, tier, reread=reread, poison=poison)

    def restore(self) -> None:
        """See `contract.Engine.restore`. Opens the door again."""
        if Role.ACTIVE not in self._workers:
            return
        super().restore()
        if self._weights() != self._digest:
            self._server.kill()
            self.replace(Role.ACTIVE)
            self._restart()
            raise Fault(Reason.MUTATED_INPUT, "after restoring, the weights' bytes were others")
        self._release()

    def replace(self, role: Role) -> float:
        """See `contract.Engine.replace`. The session ends, and the next verb begins another."""
        if role is Role.REFERENCE:
            return self._torch().replace(role)
        started = time.perf_counter_ns()
        if role is Role.ACTIVE:
            self._release()
            self._forget()
        return (time.perf_counter_ns() - started) / 1e6

    def keep(self, candidate: Candidate) -> None:
        """Serve requests with a candidate from now on, until the next session begins.

        Raises:
            Fault: it cannot be loaded or captured; the baseline serves.
        """
        self.load(candidate, Tier.SLOW)
        self.activate(candidate.id, Tier.SLOW)
        self._ask(Role.ACTIVE, wire.Keep(), self.settings.load_timeout_s)
        self._release()
        self._forget()

    def sample(self, seed: int) -> Batch:
        """A causal LM has no inputs of its own."""
        raise StropError("vLLM serves language models: their inputs are prompts")

    def revive(self) -> None:
        """See `contract.Engine.revive`."""
        self._workers.clear()
        self._forget()
        self._restart()

    def close(self) -> None:
        """See `contract.Engine.close`."""
        for worker in self._workers.values():
            worker.channel.close()
        self._workers.clear()
        if self._reference is not None:
            self._reference.close()
            self._reference = None
        self._server.close()

    # -- workers --------------------------------------------------------------------------------

    def _open(self, role: Role) -> Worker:
        """Take the engine from the server, which is started again if it is gone."""
        if not self._server.alive:
            self._restart()
        self._session = self._server.lend()
        worker = Worker(self._session.channel, self._server.process.pid)
        self.description = self._described(worker)
        return worker

    def _described(self, worker: Worker) -> Description:
        timeout_s = self.settings.load_timeout_s
        reply = worker.exchange(wire.Describe(self.settings.fast_layers), timeout_s)
        if isinstance(reply, wire.Failed):
            self._bury(worker)
            raise StropError(f"vLLM: {reply.detail}")
        found: Description = msgspec.json.decode(reply.description, type=Description)
        if not self._digest:
            self._digest = found.fingerprint.model_hash
        return found

    def _bury(self, worker: Worker) -> int:
        """Hang up. A server that does not take its engine back is ended."""
        worker.channel.close()
        session, self._session = self._session, None
        if session is not None and not session.close():
            self._server.kill()
        return self._server.process.poll() or 0

    def _blame(self, role: Role, status: int) -> Fault:
        return Fault(Reason.CRASHED, f"vLLM's engine died: {self._server.last_words()}")

    def _autopsy(self, role: Role, how: str) -> Fault:
        """See `RemoteEngine`. A dead server is started again at once: clients wait for it."""
        status = self._bury(self._workers.pop(role))
        self._forget()
        if self._server.alive:
            return Fault(Reason.CRASHED, f"the worker hung up: {how}")
        fault = self._blame(role, status)
        self._restart()
        return fault

    def _release(self) -> None:
        """End the session, so that waiting requests are served."""
        if (worker := self._workers.pop(Role.ACTIVE, None)) is not None:
            self._bury(worker)

    def _started(self) -> VllmServer:
        self.server_starts += 1
        return VllmServer(self.served, self.settings.records, self.settings.load_timeout_s, self.progress)

    def _restart(self) -> None:
        self._server.close()
        self._server = self._started()

    def _weights(self) -> str:
        found: str = self._ask(Role.ACTIVE, wire.Digest()).text
        return found

    @contextlib.contextmanager
    def _baseline(self, tier: Tier) -> Iterator[None]:
        """Run the baseline for a moment, then what was active before."""
        before = self._active
        self.activate(BASELINE_ID, tier)
        yield
        self.activate(*before)

    def _torch(self) -> ProcessEngine:
        """Return the engine that computes the reference, started at the first need."""
        if self._reference is None:
            settings = replace(
                self.settings,
                kind="torch",
                model=_folder(self.description),
                dtype="float32",
                device="cpu",
                fast_layers=self.description.fast_layers,
            )
            self.progress("loading the reference")
            self._reference = ProcessEngine(_REFERENCE, settings, self.progress)
        return self._reference


def _folder(description: Description) -> str:
    """Return the folder of the model's files, which vLLM has loaded on this machine."""
    if Path(description.model, "config.json").exists():
        return description.model
    if description.tokenizer:
        return str(Path(description.tokenizer).parent)
    raise EngineGone(f"{description.model}: its files are not on this machine, and the reference needs them")
