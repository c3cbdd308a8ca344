"""A whole loop on the toy engine, in a process of its own or in the test's."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from strop import loop
from strop.config import Deployment, Engine, Policy, Search, Traffic
from strop.core import Candidate, Param, TokenSource, Verdict
from strop.dash.terminal import Quiet
from strop.journal import Journal
from strop.run import Outcome
from tests.support.candidates import TOY

__all__ = ["Listed", "deployment", "optimize"]


class Listed:
    """A searcher that proposes candidates from a list, by name."""

    name = "listed"
    trusted = True

    def __init__(self, names: Sequence[str], known: dict[str, Candidate] | None = None) -> None:
        self.left = list(names)
        self.known = known or TOY
        self.told: list[tuple[str, Verdict]] = []

    def ask(self) -> tuple[dict[str, Param], Candidate] | None:
        if not self.left:
            return None
        name = self.left.pop(0)
        return {"name": name}, self.known[name]

    def tell(self, params: dict[str, Param], verdict: Verdict) -> None:
        self.told.append((str(params["name"]), verdict))


def deployment(folder: Path, **engine: object) -> Deployment:
    """The toy under a small real trace; synthetic tokens, as the toy has no tokenizer."""
    trace = folder / "trace.jsonl"
    rows = [f'{{"arrival_s": {i}, "isl": {8 + i % 4}, "osl": {4 + i % 3}}}\n' for i in range(20)]
    trace.write_text("".join(rows), encoding="utf-8")
    settings = {"model": "toy", "kind": "toy", "step_timeout_s": 2.0, "build_timeout_s": 5.0, **engine}
    return Deployment(
        name="toy",
        engine=Engine(**settings),  # type: ignore[arg-type]
        traffic=Traffic(trace=str(trace), tokens=TokenSource.SYNTHETIC, max_clusters=2),
        search=Search(budget_s=60.0),
        policy=Policy(
            positions=400, pairs_fast=10, pairs_slow=14, pairs_final=24, patience_s=10.0, decode_steps=3
        ),
    )


def optimize(home: Path, deployed: Deployment, names: Sequence[str]) -> Outcome:
    """Take one turn with these candidates."""
    with Journal.open(home) as journal, journal.lock(deployed.name):
        return loop.optimize(deployed, journal, [Listed(names)], Quiet())


if __name__ == "__main__":
    target = Path(sys.argv[1])
    print(optimize(target / "home", deployment(target), sys.argv[2].split(",")), flush=True)
