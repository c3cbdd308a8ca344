"""Runs the judge's requests on vLLM's model, with whichever version of its forward pass is active."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from strop.core import BASELINE_ID, Phase, StropError, Tier
from strop.engine.contract import Array, Batch
from strop.engine.torch.first_layers import pick_k
from strop.engine.torch.versions import Context, Versions
from strop.engine.vllm.graphs import graphs_of
from strop.engine.vllm.model import Model
from strop.engine.vllm.runner import Runner

__all__ = ["VllmDriver"]

_ROOM = 1024
"""Tokens that a timed request may generate at most."""


class VllmDriver:
    """Satisfies `strop.engine.driver.Driver` inside a worker of vLLM, while its door is closed.

    The baseline on the slow tier is the user's server as it is: compiled code and its own graphs.
    Everything else runs the modules' Python forwards, with decode steps captured on first use.
    """

    def __init__(self, worker: Any, fast_layers: int = 0) -> None:
        """Look at the worker.

        Raises:
            StropError: a deployment that cannot be swapped.
        """
        runner = worker.model_runner
        if worker.vllm_config.parallel_config.pipeline_parallel_size > 1:
            raise StropError("pipeline parallelism is not supported: a candidate must see every layer")
        if worker.vllm_config.speculative_config is not None:
            raise StropError("speculative decoding is not supported: turn it off for the search")
        self.worker = worker
        self.model = Model(runner.get_model())
        self.fast = pick_k(self.model.layers, fast_layers)
        self.runner = Runner(worker)
        self.graphs = graphs_of(runner, _graphs_name(BASELINE_ID, Tier.SLOW))
        self.versions = {tier: Versions(self.model.whole) for tier in Tier}
        self.decode_only: set[tuple[str, Tier]] = set()
        self.active = (BASELINE_ID, Tier.SLOW)
        self.last: list[Array] = []
        self.kept = self.active
        """What serves once the session ends."""

    def load(self, folder: Path, version: str, tier: Tier, any_precision: bool) -> int:
        """See `Driver.load`. `phase = "decode"` in the manifest leaves the prefill to the baseline."""
        self.activate(BASELINE_ID, Tier.SLOW)
        manifest = tomllib.loads((folder / "manifest.toml").read_text(encoding="utf-8"))
        if manifest.get("phase", "all") == "decode":
            self.decode_only.add((version, tier))
        return self.versions[tier].load(folder, version, tier, any_precision, self._context(tier))

    def activate(self, version: str, tier: Tier) -> None:
        """See `Driver.activate`."""
        self.versions[tier].activate(version)
        self.active = (version, tier)
        self._enter(Phase.PREFILL)

    def drop(self) -> None:
        """See `Driver.drop`."""
        self.runner.forget()
        for versions in self.versions.values():
            versions.drop()
        self.graphs.drop()
        self.decode_only.clear()
        self.last = []
        self.activate(BASELINE_ID, Tier.SLOW)
        self.kept = self.active

    def keep(self) -> None:
        """Let the active version serve when the session ends, with every graph that vLLM has captured.

        A version for decode steps serves by its graphs alone: whatever else runs, a prefill or
        a batch that no graph fits, is the baseline's compiled code.
        """
        self._enter(Phase.DECODE)
        self.graphs.capture_all()
        self.kept = self.active

    def leave(self) -> str:
        """Hand the model back to the server; return the id of the version that serves."""
        if self.kept[0] == BASELINE_ID:
            self.drop()
        else:
            self.runner.forget()
            self.activate(*self.kept)
        return self.kept[0]

    def prefill(self, batch: Batch) -> list[Array]:
        """See `Driver.prefill`."""
        self._ready(len(batch.prompts))
        self._enter(Phase.PREFILL)
        self.runner.begin(batch.prompts, _ROOM, batch.slot)
        return [np.array(self.runner.prefill(), dtype=np.int64)[:, None]]

    def decode(self, steps: int, first: tuple[int, ...]) -> list[Array]:
        """See `Driver.decode`."""
        self._enter(Phase.DECODE)
        if first:
            held = [request.tokens for request in self.runner.requests]
            joined = [(*tokens, token) for tokens, token in zip(held, first, strict=True)]
            self.runner.begin(joined, 0, 0, computed=[len(tokens) for tokens in held])
        return [self.runner.decode(steps)]

    def score(self, batch: Batch, whole: bool) -> list[Array]:
        """See `Driver.score`."""
        forced = batch.forced or ((),) * len(batch.prompts)
        joined = [p + f for p, f in zip(batch.prompts, forced, strict=True)]
        self._ready(len(joined))
        self._enter(Phase.PREFILL)
        self.runner.begin(joined, 0, batch.slot)
        rows = [[part] for part in self.runner.logits(list(map(len, joined if whole else batch.prompts)))]
        self._enter(Phase.DECODE)
        for _ in () if whole else range(len(forced[0])):
            for row, logits in zip(rows, self.runner.logits([1] * len(joined)), strict=True):
                row.append(logits)
        self.last = [np.concatenate([part.numpy() for part in row]) for row in rows]
        self._inputs = list(map(len, batch.prompts))
        return self.last

    def reread(self) -> list[Array]:
        """See `Driver.reread`. Outputs were copied as they came: nothing can write to them later."""
        return [*self.last, *self.runner.held_tokens(self._inputs)]

    def _ready(self, size: int) -> None:
        """Have the active version's decode graph before any clock runs, where graphs are used."""
        self._enter(Phase.DECODE)
        self.graphs.capture(size)

    def _enter(self, phase: Phase) -> None:
        """Install what runs in a phase: forwards, number of layers, compiled or not, graphs."""
        version, tier = self.active
        installed = version
        if phase is Phase.PREFILL and self.active in self.decode_only:
            installed = BASELINE_ID
        for other in Tier:
            self.versions[other].activate(BASELINE_ID)
        self.versions[tier].activate(installed)
        self.model.run_layers(self.fast if tier is Tier.FAST else self.model.layers)
        # Compiled code has the baseline's forwards and the number of layers in it.
        self.model.bypass_compile(installed != BASELINE_ID or tier is Tier.FAST)
        self.graphs.show(_graphs_name(version, tier))

    def _context(self, tier: Tier) -> Context:
        config = self.worker.vllm_config
        return Context(
            tier=tier,
            device=str(self.worker.device.type),
            dtype=str(config.model_config.dtype).removeprefix("torch."),
            threads=0,
            max_context=config.model_config.max_model_len,
            precision="same",
            cache_name="",
        )


def _graphs_name(version: str, tier: Tier) -> str:
    return f"{version}/{tier.value}"
