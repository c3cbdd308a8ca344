"""The fake that ships: a small recurrent language model in numpy behind the real engine's processes.

It passes the conformance suite of every engine without torch, so the loop can be tested in
milliseconds; nothing measured on it is ever a result. A candidate's forward for it is

    def forward(tokens, state):  # tokens (n,) int64, state None or what was returned before
        return logits, state     # logits (n, vocab)
"""

from __future__ import annotations

import hashlib
import mmap
import os
import platform
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from fcntl import F_ADD_SEALS, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_WRITE, fcntl
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from strop import config
from strop.core import BASELINE_ID, Fault, Fingerprint, Reason, StropError, Tier
from strop.engine import jail
from strop.engine.candidate_package import import_forward
from strop.engine.contract import Array, Batch, Description, Kind

__all__ = ["Toy", "ToyDriver", "ToyHolder", "hold"]

_VOCAB, _WIDTH, _LAYERS, _FAST_LAYERS = 64, 48, 10, 2

Forward = Callable[[npt.NDArray[np.int64], Any], tuple[Array, Any]]


def hold(settings: config.Engine, progress: Callable[[str], None]) -> ToyHolder:
    """Make the toy; its only model is called "toy".

    Raises:
        StropError: another model is asked for.
    """
    if settings.model != "toy":
        raise StropError(f"unknown model {settings.model!r}: the toy engine only knows 'toy'")
    progress("making the toy")
    return ToyHolder(settings)


@dataclass(slots=True)
class Toy:
    """h += tanh((h + mean of h so far) W_l), layer by layer; logits are h E^T."""

    table: npt.NDArray[Any]
    """E, shape (vocab, width)."""
    layers: npt.NDArray[Any]
    """W, shape (layers, width, width)."""

    def forward(self, tokens: npt.NDArray[np.int64], state: Any) -> tuple[Array, Any]:
        """Run token by token, column by column: correct, and slow on purpose."""
        total, count = state or (
            np.zeros((len(self.layers), self.table.shape[1]), self.table.dtype),
            0,
        )
        total, rows = total.copy(), []
        for token in tokens:
            h, count = self.table[token], count + 1
            for index, weight in enumerate(self.layers):
                total[index] += h
                mixed = h + total[index] / np.asarray(count, h.dtype)
                h = h + np.tanh(np.stack([mixed @ column for column in weight.T]))
            rows.append(np.stack([h @ row for row in self.table]))
        return np.stack(rows), (total, count)

    def first(self, k: int) -> Toy:
        """Return the toy of the first k layers on the same weights."""
        return Toy(self.table, self.layers[:k])


class ToyHolder:
    """Satisfies `strop.engine.driver.Holder`."""

    def __init__(self, settings: config.Engine) -> None:
        self.threads = 1
        rng = np.random.default_rng(7)
        table = rng.standard_normal((_VOCAB, _WIDTH), dtype=np.float32)
        layers = rng.standard_normal((_LAYERS, _WIDTH, _WIDTH), dtype=np.float32) / _WIDTH**0.5
        self.data = table.tobytes() + layers.astype(np.float32).tobytes()
        self.fd = os.memfd_create("strop-toy", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.write(self.fd, self.data)
        fcntl(self.fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
        self.description = self._describe(settings)

    def model(self) -> Toy:
        """Map the sealed weights read-only."""
        mapping = mmap.mmap(self.fd, len(self.data), mmap.MAP_SHARED, mmap.PROT_READ)
        flat = np.frombuffer(mapping, np.float32)
        split = _VOCAB * _WIDTH
        return Toy(flat[:split].reshape(_VOCAB, _WIDTH), flat[split:].reshape(_LAYERS, _WIDTH, _WIDTH))

    def driver(self, role: str, private: bool) -> ToyDriver:
        """See `Holder.driver`."""
        model = self.model()
        if role == "reference":
            model = Toy(model.table.astype(np.float64), model.layers.astype(np.float64))
        fast = model.first(self.description.fast_layers)
        return ToyDriver({Tier.FAST: fast, Tier.SLOW: model})

    def sample(self, seed: int) -> Batch:
        """The toy is a language model: no module inputs."""
        return Batch()

    def _describe(self, settings: config.Engine) -> Description:
        k = settings.fast_layers or _FAST_LAYERS
        return Description(
            kind=Kind.CAUSAL_LM,
            model="toy",
            architecture="Toy",
            layers=_LAYERS,
            fast_layers=k,
            parameters=len(self.data) // 4,
            weight_bytes=len(self.data),
            decode_bytes={Tier.FAST: 4 * (_VOCAB + k * _WIDTH) * _WIDTH, Tier.SLOW: len(self.data)},
            vocab=_VOCAB,
            max_context=4096,
            tokenizer="",
            fingerprint=Fingerprint(
                engine="toy",
                device=platform.machine(),
                cores=os.cpu_count() or 1,
                threads=1,
                dtype="float32",
                model_hash=hashlib.sha256(self.data).hexdigest(),
                versions={"python": platform.python_version(), "numpy": np.__version__},
            ),
            jail=jail.probe(),
            source={"toy.py": Path(__file__).read_text(encoding="utf-8")},
            memory_bytes=len(self.data),
        )


@dataclass(slots=True)
class ToyDriver:
    """Satisfies `strop.engine.driver.Driver`."""

    models: dict[Tier, Toy]
    loaded: dict[tuple[str, Tier], Forward] = field(default_factory=dict)
    active: tuple[str, Tier] = (BASELINE_ID, Tier.SLOW)
    prompts: list[npt.NDArray[np.int64]] = field(default_factory=list)
    states: list[Any] = field(default_factory=list)
    next: list[int] = field(default_factory=list)
    last: list[Array] = field(default_factory=list)

    def load(self, folder: Path, version: str, tier: Tier, any_precision: bool) -> int:
        """See `Driver.load`."""
        tomllib.loads((folder / "manifest.toml").read_text(encoding="utf-8"))
        forwards = import_forward(folder, f"strop_toy_{version[:16]}_{tier.value}").build(
            self.models[tier], None
        )
        if not isinstance(forwards, dict) or not callable(forwards.get("")):
            raise Fault(Reason.LOAD_ERROR, 'build() must return {"": forward}')
        self.loaded[version, tier] = forwards[""]
        return 0

    def activate(self, version: str, tier: Tier) -> None:
        """See `Driver.activate`."""
        if version != BASELINE_ID and (version, tier) not in self.loaded:
            raise Fault(Reason.LOAD_ERROR, f"no version {version[:12]} is loaded")
        self.active = (version, tier)

    def prefill(self, batch: Batch) -> list[Array]:
        """See `Driver.prefill`."""
        self._begin(batch)
        logits = [self._run(i, prompt) for i, prompt in enumerate(self.prompts)]
        self.next = [int(rows[-1].argmax()) for rows in logits]
        return [np.array(self.next, np.int64)[:, None]]

    def decode(self, steps: int, first: tuple[int, ...]) -> list[Array]:
        """See `Driver.decode`."""
        self.next, columns = list(first) or self.next, []
        for _ in range(steps):
            self.next = [int(self._run(i, np.array([t]))[-1].argmax()) for i, t in enumerate(self.next)]
            columns.append(self.next)
        return [np.array(columns, np.int64).T]

    def score(self, batch: Batch, whole: bool) -> list[Array]:
        """See `Driver.score`."""
        self._begin(batch)
        forced = batch.forced or ((),) * len(batch.prompts)
        self.last = []
        for i, (prompt, rest) in enumerate(zip(self.prompts, forced, strict=True)):
            parts = [self._run(i, prompt), *(self._run(i, np.array([token])) for token in rest)]
            self.last.append(np.concatenate(parts))
        return self.last

    def reread(self) -> list[Array]:
        """See `Driver.reread`."""
        return [*self.last, *self.prompts]

    def drop(self) -> None:
        """See `Driver.drop`."""
        self.loaded.clear()
        self.active = (BASELINE_ID, Tier.SLOW)

    def _begin(self, batch: Batch) -> None:
        self.prompts = [np.array(prompt, np.int64) for prompt in batch.prompts]
        self.states = [None] * len(batch.prompts)

    def _run(self, index: int, tokens: npt.NDArray[np.int64]) -> Array:
        model = self.models[self.active[1]]
        forward = self.loaded.get(self.active, model.forward)
        try:
            logits, self.states[index] = forward(tokens, self.states[index])
        except ValueError as error:
            # numpy refuses where a C kernel would be killed by the read-only mapping.
            if "read-only" in str(error):
                raise Fault(Reason.MUTATED_INPUT, "it wrote to the weights") from error
            raise
        return np.asarray(logits)
