"""Decode steps by one compiled function, decode.cpp: nothing is dispatched, no weight is copied.

A step then costs little more than reading the weights once. Needs g++ where `build` runs.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from ctypes import POINTER, c_float, c_int64, c_void_p
from pathlib import Path
from typing import Any

import torch

_FLAGS = ("-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fPIC", "-shared", "-fopenmp")
_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class _Layer(ctypes.Structure):
    _fields_ = [(f"p{i}", c_void_p) for i in range(2 + 2 * len(_PROJECTIONS))]


class _Model(ctypes.Structure):
    _fields_ = [
        *((n, c_int64) for n in ("layers", "hidden", "q_heads", "kv_heads", "dim", "ffn", "vocab")),
        *((n, c_float) for n in ("eps", "scale")),
        *((n, c_void_p) for n in ("embed", "norm", "head", "head_bias")),
        ("layer", POINTER(_Layer)),
    ]


class _Step(ctypes.Structure):
    _fields_ = [
        *((n, c_int64) for n in ("batch", "past", "keys_batch_stride", "keys_head_stride")),
        *((n, c_void_p) for n in ("ids", "cos", "sin", "keys", "values", "mask")),
        *((n, c_void_p) for n in ("scratch", "logits")),
    ]


class NativeDecode:
    """One decode step: token ids and KV cache to logits, float32 on the CPU."""

    def __init__(self, model: Any, layers: list[Any]) -> None:
        _check(model, layers)
        self.library = _compile()
        self.kept: list[Any] = []
        self.layers = (_Layer * len(layers))(*(_Layer(*self._layer(layer)) for layer in layers))
        attention, inner = layers[0].self_attn, model.model
        self.dim: int = attention.head_dim
        self.vocab, hidden = model.lm_head.weight.shape
        projections = (attention.q_proj, attention.k_proj)
        heads = [projection.out_features // self.dim for projection in projections]
        ffn = layers[0].mlp.gate_proj.out_features
        head = model.lm_head
        parts = (inner.embed_tokens.weight, inner.norm.weight, head.weight, head.bias)
        pointers = [self._pointer(tensor) for tensor in parts]
        sizes = [len(layers), hidden, *heads, self.dim, ffn, self.vocab]
        numbers = [inner.norm.variance_epsilon, attention.scaling]
        self.model = _Model(*sizes, *numbers, *pointers, self.layers)
        self.scratch = torch.empty(0)

    def __call__(
        self,
        ids: torch.Tensor,
        rope: tuple[torch.Tensor, torch.Tensor],
        caches: list[Any],
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """Append one position to every layer's cache; return logits (batch, 1, vocab).

        ids is (batch, 1) int64, `rope` what `Rope.at` gives for one position, `mask` None or a
        bool (batch, 1, 1, past + 1).
        """
        batch, past = ids.shape[0], caches[0].get_seq_length()
        ids = ids.contiguous()
        cos, sin = (part.expand(batch, 1, 1, self.dim).contiguous() for part in rope)
        room = [cache.extend(1) for cache in caches]
        keys, values = (_pointers(side) for side in zip(*room, strict=True))
        visible = None if mask is None else mask.contiguous()
        logits = ids.new_empty((batch, 1, self.vocab), dtype=torch.float32)
        threads = torch.get_num_threads()
        strides = room[0][0].stride()[:2]
        tensors = [ids.data_ptr(), cos.data_ptr(), sin.data_ptr()]
        seen = visible.data_ptr() if visible is not None else None
        scratch = self._scratch(batch, past + 1, threads)
        outputs = scratch, logits.data_ptr()
        step = _Step(batch, past, *strides, *tensors, keys, values, seen, *outputs)
        self.library.decode_step(ctypes.byref(self.model), ctypes.byref(step), threads)
        return logits

    def _scratch(self, batch: int, total: int, threads: int) -> int:
        wanted = self.library.scratch_floats(ctypes.byref(self.model), batch, total, threads)
        if self.scratch.numel() < wanted:
            self.scratch = torch.empty(2 * wanted)
        return self.scratch.data_ptr()

    def _layer(self, layer: Any) -> list[int | None]:
        attention, mlp = layer.self_attn, layer.mlp
        linears = [getattr(attention if hasattr(attention, n) else mlp, n) for n in _PROJECTIONS]
        norms = [layer.input_layernorm.weight, layer.post_attention_layernorm.weight]
        tensors = norms + [m.weight for m in linears] + [m.bias for m in linears]
        return [self._pointer(tensor) for tensor in tensors]

    def _pointer(self, tensor: torch.Tensor | None) -> int | None:
        if tensor is None:
            return None
        tensor = tensor.detach().contiguous()
        self.kept.append(tensor)
        return tensor.data_ptr()


def _pointers(tensors: tuple[torch.Tensor, ...]) -> ctypes.c_void_p:
    array = (c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
    return ctypes.cast(array, c_void_p)


def _check(model: Any, layers: list[Any]) -> None:
    weight = model.model.embed_tokens.weight
    if weight.dtype != torch.float32 or weight.device.type != "cpu":
        what = f"{weight.dtype} on {weight.device}"
        raise ValueError(f"native: float32 on the CPU is needed, not {what}")
    if model.config.hidden_act not in ("silu", "swish"):
        raise ValueError(f"native: the activation must be silu, not {model.config.hidden_act}")
    if shutil.which("g++") is None:
        raise ValueError("native: g++ is needed to compile decode.cpp and is not on the PATH")
    norms = [n for x in layers for n in (x.input_layernorm, x.post_attention_layernorm)]
    epsilons = {norm.variance_epsilon for norm in norms}
    if epsilons != {model.model.norm.variance_epsilon}:
        raise ValueError("native: all norms must have one epsilon")


def _compile() -> ctypes.CDLL:
    source = Path(__file__).with_name("decode.cpp")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "decode.so"
        command = ["g++", *_FLAGS, str(source), "-o", str(target)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ValueError(f"native: g++ failed: {done.stderr.strip()[-300:]}")
        library = ctypes.CDLL(str(target))
    library.decode_step.argtypes = [POINTER(_Model), POINTER(_Step), c_int64]
    library.decode_step.restype = None
    library.scratch_floats.argtypes = [POINTER(_Model), c_int64, c_int64, c_int64]
    library.scratch_floats.restype = c_int64
    return library
