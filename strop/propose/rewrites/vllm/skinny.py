"""Products of a few rows with a weight matrix, bound by reading the weights once.

A program owns a few output columns, that is rows of the weight, and walks along the reduction in
blocks; sums are float32. Up to 4 rows of x, multiply and add on the CUDA cores keeps up with the
memory; from 5 to 16 rows tensor cores do the same walk.
"""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl

from .jit import jit

MAX_ROWS = 16
_DOT_ROWS = 16
"""Both the rows of x and the rows of the weight in one dot: the least that every GPU takes."""
_DOT_COLS = 256
_MOST_WITHOUT_DOT = 4
_WARPS = 4


@jit
def sums(
    x: tl.tensor,
    weight: tl.tensor,
    rows: tl.tensor,
    n_x: tl.tensor,
    n_in: tl.tensor,
    x_stride: tl.tensor,
    weight_stride: tl.tensor,
    BATCH: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    EVEN: tl.constexpr,
    DOT: tl.constexpr,
) -> tl.tensor:
    """Return x @ weight[rows].T as (BATCH, ROWS) float32; the rows of x are 0 to BATCH - 1.

    Rows of x past n_x repeat the last one: loads stay in bounds without a mask.
    """
    batch = tl.minimum(tl.arange(0, BATCH), n_x - 1) * x_stride
    starts = rows.to(tl.int64) * weight_stride
    cols = tl.arange(0, COLS)
    if DOT:
        x_at = x + batch[:, None] + cols[None, :]
        weight_at = weight + starts[None, :] + cols[:, None]
        x_cols = cols[None, :]
        weight_cols = cols[:, None]
        total = tl.zeros((BATCH, ROWS), dtype=tl.float32)
    else:
        # Three axes from the start: both loads then spread over the threads in the same way, and
        # nothing is exchanged between them inside the loop.
        x_at = x + batch[:, None, None] + cols[None, None, :]
        weight_at = weight + starts[None, :, None] + cols[None, None, :]
        x_cols = cols[None, None, :]
        weight_cols = x_cols
        total = tl.zeros((BATCH, ROWS, COLS), dtype=tl.float32)
    for start in range(0, n_in, COLS):
        if EVEN:
            a = tl.load(x_at + start)
            b = tl.load(weight_at + start)
        else:
            a = tl.load(x_at + start, mask=start + x_cols < n_in, other=0.0)
            b = tl.load(weight_at + start, mask=start + weight_cols < n_in, other=0.0)
        if DOT:
            total = tl.dot(a, b, total, input_precision="ieee")
        else:
            total += a.to(tl.float32) * b.to(tl.float32)
    if not DOT:
        total = tl.sum(total, axis=2)
    return total


@jit
def product(
    x: tl.tensor,
    weight: tl.tensor,
    y: tl.tensor,
    n_x: tl.tensor,
    n_in: tl.tensor,
    n_out: tl.tensor,
    x_stride: tl.tensor,
    weight_stride: tl.tensor,
    BATCH: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    EVEN: tl.constexpr,
    DOT: tl.constexpr,
) -> None:
    """Write y = x @ weight.T: x (n_x, n_in), weight (n_out, n_in), y (n_x, n_out) contiguous."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    read = tl.minimum(rows, n_out - 1)
    total = sums(x, weight, read, n_x, n_in, x_stride, weight_stride, BATCH, ROWS, COLS, EVEN, DOT)
    batch = tl.arange(0, BATCH)
    mask = (batch < n_x)[:, None] & (rows < n_out)[None, :]
    tl.store(y + batch[:, None] * n_out + rows[None, :], total.to(y.dtype.element_ty), mask=mask)


@jit
def gated(
    x: tl.tensor,
    weight: tl.tensor,
    y: tl.tensor,
    n_x: tl.tensor,
    n_in: tl.tensor,
    n_out: tl.tensor,
    x_stride: tl.tensor,
    weight_stride: tl.tensor,
    BATCH: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    EVEN: tl.constexpr,
    DOT: tl.constexpr,
) -> None:
    """Write y = silu(gate) * up: weight (2 * n_out, n_in) holds gate's rows, then up's.

    A tile takes ROWS rows in all, gate and up in turns, so that one walk along x serves both.
    """
    part = tl.arange(0, ROWS)
    read = tl.minimum(tl.program_id(0) * (ROWS // 2) + part // 2, n_out - 1) + part % 2 * n_out
    total = sums(x, weight, read, n_x, n_in, x_stride, weight_stride, BATCH, ROWS, COLS, EVEN, DOT)
    gate, up = tl.split(tl.reshape(total, (BATCH, ROWS // 2, 2)))
    # Rounded where separate kernels would round: the baseline stores gate, up and silu(gate).
    kind = y.dtype.element_ty
    gate = gate.to(kind).to(tl.float32)
    up = up.to(kind).to(tl.float32)
    act = (gate / (1.0 + tl.exp(-gate))).to(kind).to(tl.float32)
    rows = tl.program_id(0) * (ROWS // 2) + tl.arange(0, ROWS // 2)
    batch = tl.arange(0, BATCH)
    mask = (batch < n_x)[:, None] & (rows < n_out)[None, :]
    tl.store(y + batch[:, None] * n_out + rows[None, :], (act * up).to(kind), mask=mask)


def multiply(x: torch.Tensor, weight: torch.Tensor, rows: int, cols: int) -> torch.Tensor:
    """Return x @ weight.T, (n, out) in x's dtype, for x (n, in) and weight (out, in); n is 1 to 16.

    `rows` of the weight by `cols` of the reduction are read at a time (powers of two).
    """
    return _launch(product, x, weight, weight.shape[0], rows, cols, 1)


def multiply_gated(x: torch.Tensor, weight: torch.Tensor, rows: int, cols: int) -> torch.Tensor:
    """Return silu(x @ gate.T) * (x @ up.T), (n, out), for weight (2 * out, in), gate first.

    `rows` counts output columns: each reads one row of gate and one of up.
    """
    return _launch(gated, x, weight, weight.shape[0] // 2, rows, cols, 2)


def _launch(
    kernel: Any, x: torch.Tensor, weight: torch.Tensor, n_out: int, rows: int, cols: int, each: int
) -> torch.Tensor:
    """Run a kernel that reads `each` rows of the weight for one output column."""
    n, n_in = x.shape
    x = x if x.stride(1) == 1 else x.contiguous()
    y = torch.empty((n, n_out), dtype=x.dtype, device=x.device)
    dot = n > _MOST_WITHOUT_DOT
    batch = MAX_ROWS if dot else (1, 2, 4, 4)[n - 1]
    tile = _DOT_ROWS if dot else rows * each
    cols = _DOT_COLS if dot else cols
    kernel[(-(-n_out * each // tile),)](
        x,
        weight,
        y,
        n,
        n_in,
        n_out,
        x.stride(0),
        weight.stride(0),
        BATCH=batch,
        ROWS=tile,
        COLS=cols,
        EVEN=n_in % cols == 0,
        DOT=dot,
        num_warps=_WARPS,
    )
    return y
