"""Rotary position embedding (Su et al. 2021, arXiv:2104.09864) from a table made once."""

from __future__ import annotations

from typing import Any

import torch


class Rope:
    """Cosines and signed sines, one row a position, grown as positions are asked for.

    The rows come from the model's own rotary module, so its scaling is included.
    """

    def __init__(self, module: Any, dtype: torch.dtype, device: torch.device) -> None:
        self.module = module
        self.sample = torch.empty(0, dtype=dtype, device=device)
        self.cos = self.sin = self.sample

    def at(self, start: int, count: int, positions: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cos and signed sin, each (1 or batch, count, 1, head_dim).

        Positions are start .. start + count - 1 unless given as (1 or batch, count) int64.
        """
        if positions is None:
            self._reach(start + count)
            return self.cos[:, start : start + count], self.sin[:, start : start + count]
        self._reach(int(positions.max()) + 1)
        return self.cos[0, positions], self.sin[0, positions]

    def _reach(self, length: int) -> None:
        if self.cos.numel() == 0 or self.cos.shape[1] < length:
            size = max(256, 1 << (length - 1).bit_length())
            self.cos, self.sin = self._rows(torch.arange(size, device=self.sample.device)[None])

    def _rows(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        cos, sin = self.module(self.sample, positions)
        half = sin.shape[-1] // 2
        sin = torch.cat((-sin[..., :half], sin[..., half:]), dim=-1)
        return cos[:, :, None], sin[:, :, None]


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate x (batch, count, heads, head_dim). The sign of the swapped half lies in `sin`."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)
