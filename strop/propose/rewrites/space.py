"""What the built-in search may choose: options, choices, and the files that each needs.

Plain data, read where torch is not installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = [
    "FIRST",
    "FLAGS",
    "FLAG_FILES",
    "MODULE_OPTIONS",
    "SHARED_FILES",
    "SPACE",
    "VLLM",
    "VLLM_FILES",
    "VLLM_FIRST",
    "Option",
    "Value",
    "choices",
    "full",
]

Value = str | int


@dataclass(frozen=True, slots=True)
class Option:
    """One choice that the search makes."""

    name: str
    choices: tuple[Value, ...]
    """The first one is the neutral choice, nearest to what the model does by itself."""
    meaning: str
    files: Mapping[Value, tuple[str, ...]] = field(default_factory=dict)
    """Further source files that a choice needs."""
    precision: Mapping[Value, str] = field(default_factory=dict)
    """Choices that change the precision, and the precision the manifest then declares."""


_LINEAR = ("aten", "onednn", "onednn2", "packed", "packed2")
_LOW: dict[Value, str] = {"bf16": "bf16", "int8": "int8"}
_LOW_FILES: dict[Value, tuple[str, ...]] = {kind: ("precision.py",) for kind in _LOW}

_THREADS = Option("threads", (0, 1), "intra-op threads; 0 leaves the engine's")

_WHOLE_FILES = (
    "llama.py",
    "family.py",
    "layer.py",
    "attention.py",
    "rope.py",
    "cache.py",
    "head.py",
)

SPACE: tuple[Option, ...] = (
    Option(
        "scope",
        ("modules", "whole"),
        "replace single modules inside the framework's forward pass, or the whole of it",
        {"modules": ("modules.py",), "whole": _WHOLE_FILES},
    ),
    Option(
        "linear",
        (*_LINEAR, *_LOW),
        "kernel of the products: MKL as torch picks it (aten), oneDNN on the weights as they lie, "
        "oneDNN on blocked copies (packed); 2: each reduction in two halves, for less rounding",
        _LOW_FILES,
        _LOW,
    ),
    Option("head", (*_LINEAR, *_LOW), "kernel of the final projection", _LOW_FILES, _LOW),
    Option("qkv", ("separate", "fused"), "one product for queries, keys and values (copies them)"),
    Option("mlp", ("separate", "fused"), "one product for gate and up (copies them)"),
    Option("norm", ("hand", "fused"), "RMSNorm in steps or in one call"),
    Option(
        "decode",
        ("sdpa", "matmul", "native"),
        "one-token steps: attention by sdpa or by two products, or the whole step compiled",
        {"native": ("native.py", "decode.cpp", "product.h")},
    ),
    Option("prefill", ("sdpa", "blocked"), "attention over the prompt: sdpa, or oneDNN by blocks"),
    _THREADS,
)
"""Rewrites. With scope modules only MODULE_OPTIONS count: a choice other than the neutral one
replaces every such module."""

MODULE_OPTIONS = ("linear", "norm", "mlp", "threads")

FIRST: tuple[Mapping[str, Value], ...] = (
    {"scope": "modules", "linear": "onednn2"},
    {"scope": "whole", "linear": "onednn2", "head": "onednn", "decode": "native"},
    {
        "scope": "whole",
        "linear": "packed2",
        "head": "onednn",
        "qkv": "fused",
        "mlp": "fused",
        "norm": "fused",
        "decode": "native",
        "prefill": "blocked",
    },
)
"""Compositions worth trying first: a small step, no copies, everything."""

FLAGS: tuple[Option, ...] = (
    Option("attention", ("sdpa", "eager"), "transformers' attention implementation"),
    Option(
        "compile",
        ("off", "default", "max-autotune-no-cudagraphs"),
        "torch.compile of the whole model with dynamic shapes; a mode",
    ),
    Option("cache", ("dynamic", "static"), "transformers' KV cache; static has max_context slots"),
    _THREADS,
)
"""No rewriting: the framework's own settings, searched with the same budget for comparison."""

_TILES = ("1x1024", "1x2048", "2x1024", "2x2048", "4x512", "4x1024")
_SKINNY = ("vllm/skinny.py", "vllm/jit.py")


def _product(name: str, what: str) -> tuple[Option, Option]:
    """Return the options of one product of a decoder layer: its kernel, and the kernel's tile."""
    kinds = ("native", "torch", "triton")
    meaning = f"{what}: vLLM's layer, F.linear, or a Triton kernel for at most 16 rows"
    return (
        Option(name, kinds, meaning, {"triton": _SKINNY}),
        Option(f"{name}_tile", _TILES, f"rows by columns of a tile of that kernel for {name}"),
    )


VLLM: tuple[Option, ...] = (
    *_product("qkv", "queries, keys and values"),
    *_product("o", "attention's output"),
    *_product("gate_up", "gate and up"),
    *_product("down", "the MLP's output"),
    Option(
        "norm",
        ("native", "ops", "triton"),
        "RMSNorm with the residual: vLLM's module, its compiled kernel, or a Triton kernel",
        {"triton": ("vllm/fused_norm.py", "vllm/jit.py")},
    ),
    Option(
        "mlp",
        ("native", "ops", "fused"),
        "silu(gate) * up: vLLM's module, its compiled kernel, or in one Triton kernel with gate "
        "and up, which then takes the place of gate_up",
        {"fused": _SKINNY},
    ),
    Option("rotary", ("native", "ops"), "RoPE: vLLM's module or its compiled kernel"),
    Option("phase", ("decode", "all"), "replace batches that only decode, or every batch"),
)
"""Rewrites of Llama's decoder layers as vLLM builds them. Tiles count where their kernel is used."""

VLLM_FIRST: tuple[Mapping[str, Value], ...] = (
    {"norm": "ops", "mlp": "ops", "rotary": "ops"},
    {
        "qkv": "triton",
        "o": "triton",
        "gate_up": "triton",
        "down": "triton",
        "norm": "ops",
        "mlp": "ops",
        "rotary": "ops",
    },
    {
        "qkv": "triton",
        "qkv_tile": "2x1024",
        "o": "triton",
        "o_tile": "1x2048",
        "gate_up_tile": "1x2048",
        "down": "triton",
        "down_tile": "1x2048",
        "norm": "triton",
        "mlp": "fused",
        "rotary": "ops",
    },
)
"""Worth trying first: vLLM's own kernels only, other products, everything."""

VLLM_FILES = ("vllm/decoder.py", "vllm/product.py", "vllm/norms.py")
SHARED_FILES = ("linear.py", "mlp.py", "norm.py")
FLAG_FILES = ("flags.py",)


def choices(options: Sequence[Option], any_precision: bool = False) -> dict[str, tuple[Value, ...]]:
    """Return option name to choices, without those that change the precision unless allowed."""
    return {
        option.name: tuple(c for c in option.choices if any_precision or c not in option.precision)
        for option in options
    }


def full(options: Sequence[Option], chosen: Mapping[str, Value]) -> dict[str, Value]:
    """Return a choice for every option: the one made, else the neutral one."""
    return {option.name: chosen.get(option.name, option.choices[0]) for option in options}
