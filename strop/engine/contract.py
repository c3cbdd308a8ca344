"""The seam every engine stands behind: its verbs, and the records that cross it.

All verbs are called from the judge's process. Only output bytes come back, and every time is
taken by the judge's own clock around an exchange, so nothing an engine says about itself counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from strop.core import Candidate, Fingerprint, Pair, Phase, Tier

__all__ = [
    "Array",
    "Batch",
    "Description",
    "Engine",
    "Kind",
    "Loaded",
    "Role",
    "Scored",
    "Timed",
    "Timing",
]

Array = npt.NDArray[np.generic]


class Kind(StrEnum):
    """What the engine drives: prefill and decode over a KV cache, or one call of a module."""

    CAUSAL_LM = "causal_lm"
    MODULE = "module"


class Role(StrEnum):
    """Who computes a score."""

    ACTIVE = "active"
    """The version that is active in the worker that runs candidate code."""
    BASELINE = "baseline"
    """The unchanged forward pass, in a process that never saw a candidate."""
    REFERENCE = "reference"
    """The unchanged forward pass in the reference dtype, in such a process too."""


@dataclass(frozen=True, slots=True)
class Description:
    """What an engine holds."""

    kind: Kind
    model: str
    architecture: str
    """Class name of the model."""
    layers: int
    fast_layers: int
    parameters: int
    weight_bytes: int
    decode_bytes: Mapping[Tier, int]
    """Bytes of weights that one step must read, per tier: the roofline's numerator."""
    vocab: int
    """Size of the last dimension of the logits; 0 for a module."""
    max_context: int
    tokenizer: str
    """Path of a tokenizer.json; empty when there is none."""
    fingerprint: Fingerprint
    jail: tuple[str, ...]
    source: Mapping[str, str]
    """Name to raw source of the modeling code, for the workspace an agent gets."""
    memory_bytes: int
    """Weights held by the owner process."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One unit of work.

    For a causal LM: `prompts` are token ids, one list a request (lengths may differ).
    For a module: `inputs` are arrays, positional, made by the deployment's own generator.
    """

    prompts: tuple[tuple[int, ...], ...] = ()
    steps: int = 0
    """Chained greedy decode steps after the prefill (measure)."""
    forced: tuple[tuple[int, ...], ...] = ()
    """Tokens to feed one at a time after the prompt instead of choosing them (score). measure
    feeds the first of them, one a request, and then the greedy ones: what the judge sends only
    with the decode steps cannot be computed ahead in the prefill."""
    inputs: tuple[Array, ...] = ()
    slot: int = 0
    """Which of two sets of input buffers the engine must use: addresses change under the same
    values, and values under the same address."""


@dataclass(frozen=True, slots=True)
class Scored:
    """Outputs for judging, and what became of them."""

    outputs: list[Array]
    """For a causal LM: per request, logits of shape (len(prompt) + len(forced), vocab)."""
    later: list[Array] | None = None
    """The same memory read again 50 ms later; None where that was not asked for."""
    inputs: list[Array] | None = None
    """The inputs as they are then: token ids int64 of each prompt, or a module's tensors."""


@dataclass(frozen=True, slots=True)
class Timing:
    """One measured batch. Times in ns by the judge's clock, around whole exchanges."""

    prefill_ns: int
    """Prefill and the first token; or the one call of a module."""
    decode_ns: int
    """All chained decode steps; 0 when there were none."""
    tokens: Array
    """int64, shape (batch, 1 + steps): the greedy tokens. Shape (0, 0) for a module."""
    outputs: tuple[Array, ...] = ()
    """A module's output tensors; empty for a causal LM."""

    @property
    def total_ns(self) -> int:
        """Both phases together."""
        return self.prefill_ns + self.decode_ns


@dataclass(frozen=True, slots=True)
class Timed:
    """One pair with what it produced, so that what was timed can be checked."""

    pair: Pair
    phases: dict[Phase, tuple[int, int]]
    """Phase to (baseline ns, candidate ns)."""
    batch: Batch
    """The candidate's; the baseline had another text of the same lengths."""
    timing: Timing
    """The candidate's."""
    beside_ns: int = 0
    """The baseline's run in the candidate's worker; both are 0 where `clean_ns` was not taken."""
    clean_ns: int = 0
    """The same batch moments apart where no candidate ever ran."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A version that can be activated."""

    version: str
    tier: Tier
    build_ms: float
    extra_bytes: int
    """Memory that the candidate's repacked weights took."""


class Engine(Protocol):
    """A persistent engine: started once, swapped for ever.

    Every verb that runs candidate code raises `strop.core.Fault` when the candidate crashes,
    hangs, runs out of memory or misbehaves; the engine has then already replaced its worker, the
    baseline is active again, and the next verb works. `strop.core.EngineGone` means the engine
    itself could not be kept alive.
    """

    def describe(self) -> Description:
        """Say what is held. Cheap: may be called at any time."""

    def load(self, candidate: Candidate, tier: Tier) -> Loaded:
        """Build a candidate for a tier without making it active."""

    def activate(self, version: str, tier: Tier) -> float:
        """Make a loaded version (or "baseline") the one that runs; return the swap time in ms."""

    def measure(self, batch: Batch, role: Role = Role.ACTIVE) -> Timing:
        """Run a batch on the active version, greedy, each step fed by the one before.

        Role BASELINE runs all layers of the unchanged model, where no candidate ever ran.
        """

    def score(
        self,
        batch: Batch,
        role: Role = Role.ACTIVE,
        tier: Tier = Tier.SLOW,
        *,
        reread: bool = False,
        poison: bool = False,
    ) -> Scored:
        """Return outputs for judging.

        For a causal LM: per request, logits of shape (len(prompt) + len(forced), vocab); the
        prompt's rows come from a prefill, the forced rows from decode steps over the KV cache.
        For a module: its output tensors.

        Args:
            batch: what to compute.
            role: who computes it.
            tier: matters only to the roles that have no active version.
            reread: read outputs and inputs again 50 ms later, where they are small enough.
            poison: have all memory allocated meanwhile filled with garbage.
        """

    def restore(self) -> None:
        """Make the baseline active and drop every loaded candidate.

        Raises:
            Fault: the baseline's outputs are no longer the bits they were (worker replaced).
        """

    def health(self) -> bool:
        """Run a checked forward pass; True when its bits are the known ones."""

    @property
    def jail(self) -> tuple[str, ...]:
        """Names of the isolation layers that hold around candidates."""

    def replace(self, role: Role) -> float:
        """Give a role a fresh worker that no candidate has touched; return how long it took, in ms."""

    def revive(self) -> None:
        """Start the engine anew after `EngineGone`; the weights are loaded again."""

    def sample(self, seed: int) -> Batch:
        """Draw inputs for a module from the deployment's generator; a causal LM has none."""

    def close(self) -> None:
        """Stop every process. Safe to call twice."""
