"""Where inputs lie: a server keeps its input buffers, so a candidate sees new values at old addresses."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

__all__ = ["Buffers"]


@dataclass(slots=True)
class Buffers:
    """One buffer for each name, shape, dtype and slot, written anew for every batch."""

    kept: dict[tuple[object, ...], torch.Tensor] = field(default_factory=dict)

    def put(self, name: str, values: torch.Tensor, slot: int) -> torch.Tensor:
        """Copy `values` into their buffer and return it."""
        key = (name, values.shape, values.dtype, values.device, slot)
        if key not in self.kept:
            self.kept[key] = torch.empty_like(values)
        return self.kept[key].copy_(values)
