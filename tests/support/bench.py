"""Judges for the corpus: one engine for each model and policy, started at the first need."""

from __future__ import annotations

import hashlib
import os
from contextlib import ExitStack
from pathlib import Path

from strop import loop
from strop.config import Deployment, Engine, Policy, Search, Traffic
from strop.core import TokenSource, Verdict
from strop.dash.terminal import Quiet
from strop.engine import jail
from strop.engine.client import ProcessEngine
from strop.engine.contract import Role
from strop.engine.start import start
from strop.gate.order import CHECKS, Gate
from strop.judge import Judge
from strop.propose.perturb import perturbations
from tests.support.corpus import Entry

__all__ = ["Bench"]


class Bench:
    """A context manager that judges entries, and says what they left behind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.judges: dict[tuple[str, str], Judge] = {}
        self.stack = ExitStack()
        rows = [f'{{"arrival_s": {i}, "isl": {8 + 5 * (i % 9)}, "osl": {4 + i % 9}}}\n' for i in range(20)]
        (folder / "trace.jsonl").write_text("".join(rows), encoding="utf-8")

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def judge(self, entry: Entry, gates: tuple[Gate, ...] = CHECKS) -> Verdict:
        """Judge one entry, with all checks or fewer."""
        judge = self._judge(entry.model, entry.policy)
        judge.gates, judge.best_fast = gates, 0.0
        # Where a layer is missing the attacks still have to be refused for what they do.
        return judge(entry.candidate, trusted=bool(jail.missing(judge.turn.jail)))

    def judge_without_layer(
        self, entry: Entry, layer: str, *, trusted: bool, gates: tuple[Gate, ...] = CHECKS
    ) -> Verdict:
        """Judge one entry on a machine where an isolation layer does not hold."""
        judge = self._judge(entry.model, entry.policy)
        judge.gates, judge.best_fast = gates, 0.0
        worker = judge.turn.engine._worker(Role.ACTIVE)
        worker.jail = tuple(held.name for held in jail.LAYERS if held.name != layer)
        return judge(entry.candidate, trusted=trusted)

    def engines(self) -> list[ProcessEngine]:
        """Return the engines that run."""
        return [judge.turn.engine for judge in self.judges.values()]

    def state(self) -> dict[str, object]:
        """Return what must be the same after a round: processes, descriptors, folders, weights."""
        found: dict[str, object] = {"judge descriptors": len(os.listdir("/proc/self/fd"))}
        for (model, policy), judge in self.judges.items():
            owner, name = judge.turn.engine._process.pid, f"{model}/{policy}"
            children = Path(f"/proc/{owner}/task/{owner}/children").read_text(encoding="ascii").split()
            found[f"{name} processes"] = len(children)
            found[f"{name} descriptors"] = len(os.listdir(f"/proc/{owner}/fd"))
            found[f"{name} mounts"] = Path(f"/proc/{owner}/mounts").read_text(encoding="ascii").count("\n")
            found[f"{name} owner starts"] = judge.turn.engine.owner_starts
            found[f"{name} weights"] = weights(owner)
        return found

    def memory(self) -> dict[str, int]:
        """Return the resident bytes of the judge and of every owner."""
        pids = {"judge": os.getpid()}
        pids |= {f"{m}/{p}": judge.turn.engine._process.pid for (m, p), judge in self.judges.items()}
        return {name: resident(pid) for name, pid in pids.items()}

    def _judge(self, model: str, policy: str) -> Judge:
        if (model, policy) not in self.judges:
            deployed = self._deployment(model, policy)
            engine = self.stack.enter_context(start(deployed, lambda line: None))
            turn = loop.observe(deployed, engine, Quiet())
            loop.plan(turn, Quiet())
            turn.calibrate(perturbations())
            self.judges[model, policy] = Judge(turn, Quiet())
        return self.judges[model, policy]

    def _deployment(self, model: str, policy: str) -> Deployment:
        # Long enough that a machine which stalls for seconds is not taken for a candidate that hangs.
        return Deployment(
            model,
            Engine(f"tests.attacks.models:{model}", threads=1, step_timeout_s=20.0, fast_layers=1),
            Traffic(str(self.folder / "trace.jsonl"), tokens=TokenSource.SYNTHETIC, max_clusters=1),
            Search(),
            Policy(
                numerics="bit_exact" if policy == "bit_exact" else "tolerance",
                allow_precision_change=policy == "precision",
                patience_s=20.0,
                rounds_most=300,
                decode_steps=4,
            ),
        )


def resident(pid: int) -> int:
    """Private resident bytes of a process."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        fields = file.read().split()
    return (int(fields[1]) - int(fields[2])) * 4096


def weights(owner: int) -> str:
    """Hash the sealed weights of an owner, as they lie in its memfd."""
    for name in os.listdir(f"/proc/{owner}/fd"):
        path = f"/proc/{owner}/fd/{name}"
        if "memfd:strop" in os.readlink(path):
            with open(path, "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
    return "none"
