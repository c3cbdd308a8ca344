"""Small models for tests, given to the engine as `tests.support.models:NAME`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def tiny_llama() -> nn.Module:
    """A random Llama of 4 layers with weights large enough that every layer matters."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=160,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=0.15,
    )
    return LlamaForCausalLM(config)


class Spectrum(nn.Module):
    """A small convolution that is no language model."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 8, 5, padding=2)
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = torch.relu(self.conv(x)).mean(-1)
        return {"scores": self.head(hidden), "hidden": hidden}


def spectrum() -> tuple[nn.Module, Any]:
    """A module with its sampler of inputs."""
    torch.manual_seed(1)

    def sampler(seed: int) -> tuple[torch.Tensor, ...]:
        return (torch.randn(2, 4, 64, generator=torch.Generator().manual_seed(seed)),)

    return Spectrum(), sampler


class SlowSpectrum(Spectrum):
    """The same, computed a hundred times by its forward; `quick` gives the same bits once."""

    def quick(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return Spectrum.forward(self, x)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        for _ in range(100):
            out = self.quick(x)
        return out


def slow_spectrum() -> tuple[nn.Module, Any]:
    """A module that can be made faster without another bit."""
    torch.manual_seed(1)
    return SlowSpectrum(), spectrum()[1]
