"""RMSNorm, with or without the residual's addition, in one kernel: one program a row."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .jit import jit


@jit
def normalize(
    x: tl.tensor,
    residual: tl.tensor,
    weight: tl.tensor,
    y: tl.tensor,
    total: tl.tensor,
    n: tl.tensor,
    eps: tl.tensor,
    x_stride: tl.tensor,
    residual_stride: tl.tensor,
    COLS: tl.constexpr,
    ADD: tl.constexpr,
) -> None:
    """Write y, and with ADD the rounded total = x + residual; both (rows, n) contiguous."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, COLS)
    inside = cols < n
    wide = tl.load(x + row * x_stride + cols, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        onto = tl.load(residual + row * residual_stride + cols, mask=inside, other=0.0)
        wide += onto.to(tl.float32)
        # The stored sum is rounded, the normalised one is not: as vLLM's own definition has it.
        tl.store(total + row * n + cols, wide.to(total.dtype.element_ty), mask=inside)
    scale = 1.0 / tl.sqrt(tl.sum(wide * wide, axis=0) / n + eps)
    factor = tl.load(weight + cols, mask=inside, other=0.0)
    # Rounded to the weight's dtype before the weight multiplies, as the baseline does.
    kind = factor.dtype
    scaled = (wide * scale).to(kind).to(tl.float32) * factor.to(tl.float32)
    tl.store(y + row * n + cols, scaled.to(kind).to(y.dtype.element_ty), mask=inside)


def run(
    x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the norm of x + residual and that sum, (rows, n) in x's dtype; writes to no input.

    Without a residual: the norm of x, and None.
    """
    rows, n = x.shape
    x = x if x.stride(1) == 1 else x.contiguous()
    y = torch.empty((rows, n), dtype=x.dtype, device=x.device)
    add = residual is not None
    onto = x if residual is None else residual
    onto = onto if onto.stride(1) == 1 else onto.contiguous()
    total = torch.empty_like(y) if add else y
    if rows:
        normalize[(rows,)](
            x,
            onto,
            weight,
            y,
            total,
            n,
            eps,
            x.stride(0),
            onto.stride(0),
            COLS=triton.next_power_of_2(n),
            ADD=add,
            num_warps=16 if n > 8192 else 8 if n > 1024 else 4,
        )
    return y, total if add else None
