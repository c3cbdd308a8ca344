"""The same sums in another order: what rounding alone does to the outputs.

No search proposes it. The judge measures how far legal reorderings move a deployment's outputs,
and draws its bounds from that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

_CONVOLUTIONS = {nn.Conv1d: torch.conv1d, nn.Conv2d: torch.conv2d, nn.Conv3d: torch.conv3d}


def build(model: nn.Module, ctx: Any, *, parts: int) -> Mapping[str, Callable[..., Any]]:
    """Return forwards that sum each linear layer and convolution in `parts`, the last part first.

    With one part the whole forward stays as it is.
    """
    if parts == 1:
        return {"": model.forward}
    found: dict[str, Callable[..., Any]] = {}
    for path, module in model.named_modules():
        if type(module) is nn.Linear:
            found[path] = _linear(module, parts)
        elif type(module) in _CONVOLUTIONS and _plain(module):
            found[path] = _convolution(module, parts)
    return found


def _linear(module: nn.Linear, parts: int) -> Callable[[torch.Tensor], torch.Tensor]:
    pieces = module.weight.detach().tensor_split(parts, dim=1)

    def forward(x: torch.Tensor) -> torch.Tensor:
        xs = x.tensor_split(parts, dim=-1)
        total = torch.zeros((), dtype=x.dtype, device=x.device)
        for part, weight in zip(reversed(xs), reversed(pieces), strict=True):
            total = total + part @ weight.T
        return total if module.bias is None else total + module.bias

    return forward


def _plain(module: Any) -> bool:
    return bool(module.groups == 1 and module.padding_mode == "zeros" and module.in_channels > 1)


def _convolution(module: Any, parts: int) -> Callable[[torch.Tensor], torch.Tensor]:
    parts = min(parts, module.in_channels)
    pieces = module.weight.detach().tensor_split(parts, dim=1)
    convolve, spatial = _CONVOLUTIONS[type(module)], module.weight.ndim - 2

    def forward(x: torch.Tensor) -> torch.Tensor:
        xs = x.tensor_split(parts, dim=-1 - spatial)
        total = torch.zeros((), dtype=x.dtype, device=x.device)
        for part, weight in zip(reversed(xs), reversed(pieces), strict=True):
            total = total + convolve(part, weight, None, module.stride, module.padding, module.dilation)
        return total if module.bias is None else total + module.bias.view(-1, *[1] * spatial)

    return forward
