"""The head: logits of the positions that are asked for, and of no other."""

from __future__ import annotations

import torch

from .linear import Linear
from .norm import Norm


def logits(hidden: torch.Tensor, keep: int | torch.Tensor, norm: Norm, product: Linear) -> torch.Tensor:
    """Norm and project (batch, n, hidden) to (batch, kept, vocab).

    `keep` is transformers' `logits_to_keep`: 0 keeps all, n > 0 the last n, a tensor those indices.
    The final norm is taken after the cut, since it sees one position at a time.
    """
    if not isinstance(keep, int):
        hidden = hidden[:, keep]
    elif 0 < keep < hidden.shape[1]:
        hidden = hidden[:, -keep:]
    return product(norm(hidden))
