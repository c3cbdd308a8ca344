"""What is attacked: small real models whose own forward wastes work.

Half of what their forward does may be dropped by anybody, bit for bit. So every candidate here has a
real gain on any machine, honest or not, and only the check that sees the cheat stands in its way.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import transformers
from torch import nn
from transformers import LlamaConfig

LAYERS, VOCAB = 2, 2048


class LlamaForCausalLM(transformers.LlamaForCausalLM):
    """A Llama that runs its decoder once for nothing. Named like its parent, as rewrites ask for it."""

    def lean(self, *args: Any, **kwargs: Any) -> Any:
        """The same outputs without the waste."""
        return transformers.LlamaForCausalLM.forward(self, *args, **kwargs)

    @functools.wraps(transformers.LlamaForCausalLM.forward)
    def forward(self, input_ids: torch.Tensor | None = None, **kwargs: Any) -> Any:
        self.model(input_ids=input_ids, use_cache=False)
        return self.lean(input_ids, **kwargs)


def wasteful_smollm2() -> nn.Module:
    """SmolLM2-135M's real weights: its first 2 layers and the first 2,048 tokens of its vocabulary."""
    from safetensors import safe_open

    from strop.engine.torch import smollm2

    folder = smollm2.folder(lambda line: None)
    config = LlamaConfig.from_pretrained(folder, num_hidden_layers=LAYERS, vocab_size=VOCAB)
    config.tie_word_embeddings = True
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    model = model.to_empty(device="cpu")
    with safe_open(folder / "model.safetensors", "pt") as file:
        model.tie_weights()
        for name, parameter in model.named_parameters():
            value = file.get_slice(name)[:VOCAB] if "embed_tokens" in name else file.get_tensor(name)
            parameter.data.copy_(value)
    model.model.rotary_emb = type(model.model.rotary_emb)(config)  # its buffers were on meta
    return model.float()


class Spectrum(nn.Module):
    """A convolution and a wide layer, computed forty times for one answer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 8, 5, padding=2)
        self.wide = nn.Linear(512, 4096)
        self.head = nn.Linear(4096, 3)

    def quick(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """The same outputs, computed once."""
        hidden = torch.relu(self.wide(torch.relu(self.conv(x)).flatten(1)))
        return {"scores": self.head(hidden), "hidden": hidden}

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        for _ in range(40):
            out = self.quick(x)
        return out


def spectrum() -> tuple[nn.Module, Any]:
    """A module with its sampler of inputs."""
    torch.manual_seed(1)

    def sampler(seed: int) -> tuple[torch.Tensor, ...]:
        return (torch.randn(2, 4, 64, generator=torch.Generator().manual_seed(seed)),)

    return Spectrum(), sampler


class Heavy(nn.Module):
    """Weights that take a while to read: 256 MB."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4096, 4096) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def one_input() -> tuple[nn.Module, Any]:
    """A module whose sampler knows a single input: the mistake of a user."""
    torch.manual_seed(1)
    return Heavy(), lambda seed: (torch.ones(1, 4096),)
