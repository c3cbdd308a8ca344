"""A real model with a waste that can be removed without another bit; see judge_power.py."""

from __future__ import annotations

import os

import torch
from torch import nn

__all__ = ["WASTE", "planted"]

WASTE = "STROP_PLANTED_WASTE"
"""Environment variable: how many small products each call throws away."""
_WIDTH, _ROWS, _BLOCKS = 256, 128, 10


class Planted(nn.Module):
    """Residual blocks whose forward also does products for nothing; `quick` leaves them out."""

    def __init__(self, waste: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        blocks = [(nn.Linear(_WIDTH, _WIDTH), nn.GELU(), nn.Linear(_WIDTH, _WIDTH)) for _ in range(_BLOCKS)]
        self.blocks = nn.ModuleList(nn.Sequential(*block) for block in blocks)
        self.waste = waste
        self.register_buffer("square", torch.randn(32, 32))

    def quick(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x.mean(0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.waste):
            torch.mm(self.square, self.square)
        return self.quick(x)


def planted() -> tuple[nn.Module, object]:
    """The model with its sampler."""

    def sampler(seed: int) -> tuple[torch.Tensor, ...]:
        return (torch.randn(_ROWS, _WIDTH, generator=torch.Generator().manual_seed(seed % 2**63)),)

    return Planted(int(os.environ.get(WASTE, "0"))), sampler
