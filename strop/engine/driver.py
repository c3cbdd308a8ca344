"""What the generic owner and worker processes ask of one kind of model.

A holder lives in the owner and keeps the weights; the driver it makes runs in a forked worker and
touches candidate code. `strop.engine.torch` and the shipped fake `strop.engine.toy` implement both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from strop.core import Tier
from strop.engine.contract import Array, Batch, Description

__all__ = ["Driver", "Holder"]


class Driver(Protocol):
    """Runs inside a worker. Exceptions of candidate code pass through; the worker reports them."""

    def load(self, folder: Path, version: str, tier: Tier, any_precision: bool) -> int:
        """Build the candidate in `folder`; return the bytes its repacked weights took."""

    def activate(self, version: str, tier: Tier) -> None:
        """Install a loaded version's forwards."""

    def prefill(self, batch: Batch) -> list[Array]:
        """Forget the batch before and run the prefill; return [first tokens (batch, 1) int64].

        For a module: its outputs.
        """

    def decode(self, steps: int, first: tuple[int, ...]) -> list[Array]:
        """Run chained greedy steps; return [tokens (batch, steps) int64].

        The first step is fed `first`, one token a request; the prefill's own where it is empty.
        """

    def score(self, batch: Batch, whole: bool) -> list[Array]:
        """Return outputs for judging; see `contract.Engine.score`."""

    def reread(self) -> list[Array]:
        """Return the last score's outputs followed by its inputs, as they are now.

        Inputs of a causal LM are the token ids of each prompt, int64.
        """

    def drop(self) -> None:
        """Make the baseline active and forget all candidates."""


class Holder(Protocol):
    """Lives in the owner. Runs no candidate code and starts no thread that a fork would break."""

    description: Description

    def driver(self, role: str, private: bool) -> Driver:
        """Make a driver, in the worker just forked. `private` maps the weights copy-on-write."""

    def sample(self, seed: int) -> Batch:
        """Draw a module's inputs."""
