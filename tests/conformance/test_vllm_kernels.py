"""Rewrites for vLLM's layers compute what those layers compute: Triton's interpreter on the CPU.

The interpreter is chosen when triton is imported, so the tests marked `interpreted` run in a
process of their own. It cuts bfloat16 off where a GPU rounds it (hence one unit in the last place,
not half), and takes the bits of bfloat16 for integers in `tl.dot`: there float16 stands in.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from strop.core import Candidate
from strop.engine.candidate_package import import_forward, write_files
from strop.propose.compose import compose_vllm
from strop.propose.rewrites import space
from strop.propose.rewrites.space import Value
from strop.propose.rewrites.vllm import decoder, norms, product
from tests.support import vllm_layers
from tests.support.vllm_layers import Linear, LlamaForCausalLM, RMSNorm, SiluAndMul

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
interpreted = pytest.mark.skipif(not INTERPRETED, reason="runs in test_under_the_interpreter")
FLOATS = (torch.float32, torch.bfloat16)
SHAPES = [(96, 7), (1000, 100), (2048, 257)]
SQUEEZED = {"qkv": "triton", "o": "triton", "gate_up": "triton", "down": "triton"}
COMPOSED: list[dict[str, Value]] = [
    {},
    {"qkv": "torch", "o": "torch", "gate_up": "torch", "down": "torch", "phase": "all"},
]
WITH_TRITON: list[dict[str, Value]] = [
    {**SQUEEZED, "norm": "triton"},
    {"qkv": "triton", "qkv_tile": "2x1024", "norm": "triton", "mlp": "fused", "gate_up_tile": "4x512"},
    {"norm": "triton", "mlp": "fused", "down": "torch"},
]


@pytest.mark.skipif(INTERPRETED, reason="this is the process that it starts")
def test_under_the_interpreter() -> None:
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout


def inputs(rows: int, size: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(rows * size)).to(dtype)


def ulp(y: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """One unit in the last place, or of 2**-6 where the values are smaller."""
    return torch.finfo(dtype).eps * torch.exp2(torch.floor(torch.log2(y.abs().clamp(min=2**-6))))


def assert_product(y: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> None:
    """The error of a float32 sum, however it is ordered (Higham 2002, 3.1), and one rounding."""
    exact = x.double() @ weight.double().T
    assert ((y.double() - exact).abs() <= rounding(x, weight) + ulp(exact, y.dtype)).all()


def rounding(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Bound of a float32 sum's error before it is stored."""
    terms = x.double().abs() @ weight.double().abs().T
    return x.shape[1] * torch.finfo(torch.float32).eps / 2 * terms


def dot_type(dtype: torch.dtype, rows: int) -> torch.dtype:
    return torch.float16 if dtype == torch.bfloat16 and rows > 4 else dtype


@interpreted
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("n_in", "n_out"), SHAPES)
@pytest.mark.parametrize("rows", [1, 3, 16])
def test_a_product_is_exact_but_for_rounding(rows: int, n_in: int, n_out: int, dtype: torch.dtype) -> None:
    dtype = dot_type(dtype, rows)
    layer, x = Linear(n_in, n_out, dtype), inputs(rows, n_in, dtype)
    y = product.make(layer, "triton", "2x1024")(x)
    assert (y.shape, y.dtype) == ((rows, n_out), dtype)
    assert_product(y, x, layer.weight)


@interpreted
@pytest.mark.parametrize("tile", product.TILES)
def test_every_tile_serves_odd_sizes_and_strided_inputs(tile: str) -> None:
    layer = Linear(1000, 7, torch.float32)
    for rows in (1, 2, 5, 17):
        x = inputs(rows, 1003, torch.float32)[:, 3:]
        assert_product(product.make(layer, "triton", tile)(x), x, layer.weight)
    columns = inputs(1000, 3, torch.float32).T
    assert_product(product.make(layer, "triton", tile)(columns), columns, layer.weight)


@interpreted
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("n_in", "n_out"), SHAPES[:2])
@pytest.mark.parametrize("rows", [1, 3, 16, 17])
def test_gate_and_up_in_one_kernel(rows: int, n_in: int, n_out: int, dtype: torch.dtype) -> None:
    dtype = dot_type(dtype, rows)
    layer, x = Linear(n_in, 2 * n_out, dtype), inputs(rows, n_in, dtype)
    y = product.make_gated(layer, SiluAndMul(), "1x1024")(x)
    gate, up = (x.double() @ layer.weight.double().T).chunk(2, dim=-1)
    expected = F.silu(gate) * up
    eps = torch.finfo(dtype).eps
    off_gate, off_up = rounding(x, layer.weight).chunk(2, dim=-1)
    # Gate and up are stored, silu's slope is below 1.1, then silu and the product are stored.
    off_act = 1.1 * (off_gate + eps * gate.abs()) + 2 * eps * F.silu(gate).abs()
    off_up = off_up + eps * up.abs()
    bound = off_act * up.abs() + (F.silu(gate).abs() + off_act) * off_up + 2 * eps * expected.abs()
    assert ((y.double() - expected).abs() <= bound).all()


@interpreted
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [96, 1000, 2048])
@pytest.mark.parametrize("rows", [1, 3, 16])
def test_the_norm_adds_and_scales(rows: int, size: int, dtype: torch.dtype) -> None:
    module, x, residual = RMSNorm(size, dtype), inputs(rows, size, dtype), inputs(rows, size + 1, dtype)
    residual = residual[:, 1:]
    before = x.clone(), residual.clone()
    norm = norms.of(module, "triton")
    y, total = norm(x, residual)
    exact = x.double() + residual.double()
    assert ((total.double() - exact).abs() <= ulp(exact, dtype)).all()
    for got, wide in ((y, exact), (norm(x), x.double())):
        scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + module.variance_epsilon)
        expected = scaled * module.weight.double()
        # Two roundings to dtype, and in float32 the few of the mean and the root.
        eps = 2 * torch.finfo(dtype).eps + 4e-6
        assert ((got.double() - expected).abs() <= eps * expected.abs() + 1e-12).all()
    assert torch.equal(x, before[0])
    assert torch.equal(residual, before[1])


def loaded(candidate: Candidate, folder: Path) -> ModuleType:
    write_files(folder, candidate.files)
    return import_forward(folder, f"vllm_candidate_{candidate.id[:16]}")


def install(model: LlamaForCausalLM, forwards: Mapping[str, Any]) -> None:
    for path, forward in forwards.items():
        model.get_submodule(path).forward = forward


def assert_composed(options: Mapping[str, Value], folder: Path, dtype: torch.dtype, rows: int) -> None:
    """The candidate's output is as far from float64 as the unmodified stack's, within a factor."""
    model = LlamaForCausalLM(dtype=dtype)
    positions, x = torch.arange(rows), inputs(rows, vllm_layers.HIDDEN, dtype)
    with torch.no_grad():
        baseline = model(positions, x).double()
        exact = LlamaForCausalLM(dtype=dtype).double()(positions, x.double())
        forwards = loaded(compose_vllm(options, "a"), folder).build(model, SimpleNamespace())
        install(model, forwards)
        y = model(positions, x)
    assert y.dtype == dtype
    assert ("model.norm" in forwards) == (options.get("norm", "native") != "native")
    error, allowed = (y.double() - exact).abs(), (baseline - exact).abs()
    # The interpreter cuts bfloat16 off: up to twice the rounding, all to one side.
    factor = 4 if dtype == torch.bfloat16 else 2
    assert error.mean() <= factor * allowed.mean()
    assert error.max() <= 2 * factor * allowed.max()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("options", COMPOSED, ids=str)
def test_composed_without_triton(options: dict[str, Value], dtype: torch.dtype, tmp_path: Path) -> None:
    assert_composed(options, tmp_path, dtype, 5)


@interpreted
@pytest.mark.parametrize("rows", [1, 3, 16, 20])
@pytest.mark.parametrize("options", WITH_TRITON, ids=str)
def test_composed_with_triton(options: dict[str, Value], rows: int, tmp_path: Path) -> None:
    assert_composed(options, tmp_path, torch.float32, rows)


@interpreted
@pytest.mark.parametrize("options", WITH_TRITON, ids=str)
def test_composed_with_triton_in_bfloat16(options: dict[str, Value], tmp_path: Path) -> None:
    assert_composed(options, tmp_path, torch.bfloat16, 3)


def test_the_space_and_the_sources_agree() -> None:
    choices = space.choices(space.VLLM)
    for name in ("qkv", "o", "gate_up", "down"):
        assert choices[name] == product.KINDS
        assert choices[f"{name}_tile"] == product.TILES
    assert choices["norm"] == norms.KINDS
    assert choices.keys() - {"phase"} == set(decoder.Options.__dataclass_fields__)


def packed(layer: Linear) -> None:
    layer.weight = torch.nn.Parameter(torch.empty(0), requires_grad=False)


def quantised(layer: Linear) -> None:
    layer.quant_method = SimpleNamespace()


def biased(layer: Linear) -> None:
    layer.bias = torch.zeros(8)


@pytest.mark.parametrize("kind", ["torch", "triton"])
@pytest.mark.parametrize(
    ("change", "message"), [(packed, "keeps no weight"), (quantised, "quantised"), (biased, "has a bias")]
)
def test_a_layer_without_a_plain_weight_is_refused(change: Any, message: str, kind: str) -> None:
    layer = Linear(8, 8, torch.float32)
    change(layer)
    with pytest.raises(ValueError, match=message):
        product.make(layer, kind)
    product.make(layer, "native")


def test_a_layer_that_ranks_share_is_called() -> None:
    layer = Linear(8, 8, torch.float32)
    layer.tp_size = 2
    layer.forward = lambda x: (x + 1, None)
    assert torch.equal(product.make(layer, "torch")(torch.zeros(1, 8)), torch.ones(1, 8))


@pytest.mark.parametrize("options", [{"norm": "ops"}, {"mlp": "ops"}, {"rotary": "ops"}], ids=str)
def test_kernels_that_this_vllm_lacks_are_named(options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="this vLLM has no compiled"):
        decoder.build(LlamaForCausalLM(), None, **options)


def test_other_models_are_refused() -> None:
    model = LlamaForCausalLM()
    model.model.layers[1].self_attn.q_norm = RMSNorm(24, torch.float32)
    with pytest.raises(ValueError, match=r"self_attn holds .*q_norm"):
        decoder.build(model, None)
    with pytest.raises(ValueError, match=r"Linear has no model\.layers"):
        decoder.build(Linear(8, 8, torch.float32), None)
    with pytest.raises(ValueError, match="mlp: one of native"):
        decoder.build(LlamaForCausalLM(), None, mlp="fast")
    with pytest.raises(ValueError, match="a Llama layer takes no scaling"):
        decoder.build(LlamaForCausalLM(), None)["model.layers.0"](None, None, None, scaling=1)
