"""Where a model comes from: a local folder, `package:factory`, or a short name."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from strop.core import StropError
from strop.engine.torch import smollm2

__all__ = ["SHORT_NAMES", "Source", "find"]

SHORT_NAMES: dict[str, Callable[[Callable[[str], None]], Path]] = {"smollm2": smollm2.folder}

Sampler = Callable[[int], Any]


@dataclass(frozen=True, slots=True)
class Source:
    """A model in evaluation mode, and what came with it."""

    model: nn.Module
    tokenizer: str
    """Path of tokenizer.json; empty when there is none."""
    sampler: Sampler | None
    """seed -> tuple of input tensors, for a module that is no causal LM."""
    code: dict[str, str]
    """Raw source of the modeling file, by file name."""


def find(name: str, dtype: str, progress: Callable[[str], None]) -> Source:
    """Load a model by its name in the deployment.

    Raises:
        StropError: the name fits none of the three forms, or loading fails.
    """
    if name in SHORT_NAMES:
        return _from_folder(SHORT_NAMES[name](progress), dtype)
    if (Path(name) / "config.json").exists():
        return _from_folder(Path(name), dtype)
    if ":" in name and not Path(name).exists():
        return _from_factory(name)
    known = ", ".join(SHORT_NAMES)
    raise StropError(
        f"unknown model {name!r}: give a folder with a config.json, package:factory, or one of: {known}"
    )


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise StropError(f"engine.dtype {name!r} is no torch dtype; float32 and bfloat16 are usual")
    return dtype


def _from_folder(folder: Path, dtype: str) -> Source:
    from transformers import AutoModelForCausalLM

    try:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=_dtype(dtype), local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        first = str(error).strip().splitlines()[0]
        raise StropError(f"{folder}: transformers cannot load this model: {first}") from None
    tokenizer = folder / "tokenizer.json"
    return Source(model.eval(), str(tokenizer) if tokenizer.exists() else "", None, _code(model))


def _from_factory(name: str) -> Source:
    package, _, attribute = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        made = getattr(importlib.import_module(package), attribute)()
    except (ImportError, AttributeError) as error:
        raise StropError(f"model {name!r}: {error}") from None
    model, sampler = made if isinstance(made, tuple) else (made, None)
    if not isinstance(model, nn.Module):
        raise StropError(f"model {name!r}: the factory must return an nn.Module, or (module, sampler)")
    tokenizer = getattr(model, "tokenizer_file", "")
    return Source(model.eval(), str(tokenizer), sampler, _code(model))


def _code(model: nn.Module) -> dict[str, str]:
    try:
        path = Path(inspect.getfile(type(model)))
        return {path.name: path.read_text(encoding="utf-8")}
    except (OSError, TypeError):
        return {}
