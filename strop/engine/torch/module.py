"""Drives any other `nn.Module`: one call is one step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from strop.core import Fault, Reason, Tier
from strop.engine.contract import Array, Batch
from strop.engine.torch.buffers import Buffers
from strop.engine.torch.versions import Context, Versions

__all__ = ["Module"]


class Module:
    """Satisfies `strop.engine.driver.Driver`; both tiers run the whole module."""

    def __init__(self, model: nn.Module, context: Context) -> None:
        self.versions = Versions(model)
        self.context = context
        self.buffers = Buffers()
        self.inputs: list[torch.Tensor] = []
        self.outputs: list[torch.Tensor] = []
        torch.set_num_threads(context.threads)

    def load(self, folder: Path, version: str, tier: Tier, any_precision: bool) -> int:
        """See `Driver.load`."""
        return self.versions.load(folder, version, tier, any_precision, self.context)

    def activate(self, version: str, tier: Tier) -> None:
        """See `Driver.activate`."""
        threads = self.versions.activate(version).threads
        torch.set_num_threads(threads or self.context.threads)

    def drop(self) -> None:
        """See `Driver.drop`."""
        self.versions.drop()
        self.inputs, self.outputs = [], []
        torch.set_num_threads(self.context.threads)

    @torch.inference_mode()
    def prefill(self, batch: Batch) -> list[Array]:
        """See `Driver.prefill`."""
        return self._call(batch)

    def decode(self, steps: int, first: tuple[int, ...]) -> list[Array]:
        """A module has no decode phase."""
        raise Fault(Reason.SHAPE, "a module has no decode steps")

    @torch.inference_mode()
    def score(self, batch: Batch, whole: bool) -> list[Array]:
        """See `Driver.score`."""
        return self._call(batch, double=whole)

    def reread(self) -> list[Array]:
        """See `Driver.reread`."""
        return [tensor.numpy(force=True) for tensor in (*self.outputs, *self.inputs)]

    def _call(self, batch: Batch, *, double: bool = False) -> list[Array]:
        self.inputs = [
            self.buffers.put(f"{index}", torch.from_numpy(array.copy()), batch.slot)
            for index, array in enumerate(batch.inputs)
        ]
        given = [t.double() if double and t.is_floating_point() else t for t in self.inputs]
        self.outputs = _flat(self.versions.model(*given))
        return [output.numpy(force=True) for output in self.outputs]


def _flat(result: Any) -> list[torch.Tensor]:
    """Return the tensors of a module's result, in a stable order."""
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, dict):
        return [tensor for key in sorted(result) for tensor in _flat(result[key])]
    if isinstance(result, (tuple, list)):
        return [tensor for part in result for tensor in _flat(part)]
    raise Fault(Reason.SHAPE, f"a module must return tensors, not {type(result).__name__}")
