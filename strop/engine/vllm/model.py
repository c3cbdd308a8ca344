"""vLLM's model in a worker: what of it is compiled, how many layers run, what its weights add up to."""

from __future__ import annotations

import hashlib
import inspect
import sys
from typing import Any

import torch
from torch import nn

from strop.core import StropError

__all__ = ["Model"]

_CHUNK = 1 << 16
"""Bytes that one sum of the digest covers."""


class Model:
    """The model of one worker, and the switches that a candidate needs."""

    def __init__(self, model: nn.Module) -> None:
        """Find the decoder.

        Raises:
            StropError: no module runs layers from `start_layer` to `end_layer`, as vLLM's decoders do.
        """
        self.whole = model
        found: list[Any] = [module for module in model.modules() if _is_decoder(module)]
        if len(found) != 1:
            raise StropError(
                f"{type(model).__name__} has {len(found)} decoders with start_layer and end_layer, "
                "and strop knows models with exactly one"
            )
        self.decoder = found[0]
        self.layers: int = self.decoder.end_layer
        self._compiled: list[Any] = [
            module for module in model.modules() if hasattr(module, "do_not_compile")
        ]
        self._was = [bool(module.do_not_compile) for module in self._compiled]

    def run_layers(self, count: int) -> None:
        """Run the first `count` layers, the final norm and the head."""
        self.decoder.end_layer = count

    def bypass_compile(self, bypass: bool) -> None:
        """Call the modules' own forwards instead of what torch.compile made of them, or go back."""
        for module, was in zip(self._compiled, self._was, strict=True):
            module.do_not_compile = was or bypass

    @property
    def compiled(self) -> bool:
        """Whether the server runs compiled code when nothing is bypassed."""
        return not all(self._was)

    @torch.inference_mode()
    def digest(self) -> str:
        """Return the SHA-256 of 64-bit sums over 64 KiB each of all weights, by name and shape."""
        digest = hashlib.sha256()
        for name, tensor in (*self.whole.named_parameters(), *self.whole.named_buffers()):
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            digest.update(_sums(tensor).numpy(force=True).tobytes())
        return digest.hexdigest()

    def source(self) -> dict[str, str]:
        """Return file name and raw source of the modules that define the model's classes."""
        names = {type(module).__module__ for module in self.whole.modules()}
        found = {}
        for name in sorted(names):
            if name.startswith("vllm.model_executor"):
                found[name.removeprefix("vllm.").replace(".", "/") + ".py"] = inspect.getsource(
                    sys.modules[name]
                )
        return found

    def step_bytes(self, layers: int) -> int:
        """Return the bytes of weights that one decode step with so many layers reads."""
        parts = [*self.decoder.layers[:layers], getattr(self.decoder, "norm", None)]
        head = getattr(self.whole, "lm_head", None)
        return sum(_weight_bytes(part) for part in [*parts, head] if part is not None)

    def weight_bytes(self) -> int:
        """Return the bytes of all weights of this rank."""
        return _weight_bytes(self.whole)


def _is_decoder(module: Any) -> bool:
    return isinstance(getattr(module, "layers", None), nn.ModuleList) and hasattr(module, "end_layer")


def _sums(tensor: torch.Tensor) -> torch.Tensor:
    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    words = data[: data.numel() // 4 * 4].view(torch.int32)
    whole = words.numel() // (_CHUNK // 4) * (_CHUNK // 4)
    parts = [words[:whole].view(-1, _CHUNK // 4).sum(1, dtype=torch.int64)]
    parts.append(words[whole:].sum(dtype=torch.int64)[None])
    parts.append(data[words.numel() * 4 :].sum(dtype=torch.int64)[None])
    return torch.cat(parts)


def _weight_bytes(part: nn.Module) -> int:
    """Sum over modules: the CPU's linear layers keep their packed weight where nobody sees it."""
    total, seen = 0, set[int]()
    for module in part.modules():
        own = [p for p in module.parameters(recurse=False) if id(p) not in seen]
        seen.update(map(id, own))
        held = sum(p.numel() * p.element_size() for p in own)
        sides: tuple[Any, Any] = (
            getattr(module, "output_size_per_partition", 0),
            getattr(module, "input_size_per_partition", 0),
        )
        if all(isinstance(side, int) for side in sides) and own:
            held = max(held, sides[0] * sides[1] * own[0].element_size())
        total += held
    return total
