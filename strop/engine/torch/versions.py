"""Versions of a forward pass on one model: build, install, remove."""

from __future__ import annotations

import fnmatch
import inspect
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from strop.core import BASELINE_ID, Fault, Reason, Tier
from strop.engine.candidate_package import import_forward

__all__ = ["Context", "Version", "Versions", "build", "cache_name"]


@dataclass(frozen=True, slots=True)
class Context:
    """The `ctx` that a candidate's `build(model, ctx)` gets."""

    tier: Tier
    device: str
    dtype: str
    threads: int
    max_context: int
    precision: str
    """"same", or "any" where the deployment opted in to a change of precision."""
    cache_name: str
    """The name transformers gives the KV cache, as an argument and as a field of the output."""


@dataclass(frozen=True, slots=True)
class Version:
    """New forwards by module, and the intra-op threads they want (0: the engine's)."""

    forwards: tuple[tuple[nn.Module, Callable[..., Any]], ...] = ()
    threads: int = 0


def cache_name(model: nn.Module) -> str:
    """Return the name of the KV cache argument, which transformers 5 renamed on its way."""
    names = inspect.signature(type(model).forward).parameters
    return "cache" if "cache" in names else "past_key_values"


def build(model: nn.Module, folder: Path, name: str, ctx: Context) -> Version:
    """Import the candidate in `folder` under a unique name and let it build its forwards.

    Raises:
        Fault: load_error when what `build` returns is no mapping of module paths to callables.
    """
    manifest = tomllib.loads((folder / "manifest.toml").read_text(encoding="utf-8"))
    with torch.no_grad():
        forwards = import_forward(folder, f"strop_candidate_{name}").build(model, ctx)
    return Version(tuple(_resolve(model, forwards)), int(manifest.get("threads", 0)))


def _resolve(model: nn.Module, forwards: Any) -> list[tuple[nn.Module, Callable[..., Any]]]:
    if not isinstance(forwards, Mapping) or not forwards:
        raise Fault(Reason.LOAD_ERROR, "build() must return {module path or glob: new forward}")
    modules = dict(model.named_modules())
    found = []
    for pattern, forward in forwards.items():
        paths = [""] if pattern == "" else fnmatch.filter(modules, pattern)
        if not paths:
            raise Fault(Reason.LOAD_ERROR, f"no module of the model matches {pattern!r}")
        if not callable(forward):
            raise Fault(Reason.LOAD_ERROR, f"the forward for {pattern!r} cannot be called")
        found += [(modules[path], forward) for path in paths]
    return found


@dataclass(slots=True)
class Versions:
    """The versions loaded on one model; at most one is installed."""

    model: nn.Module
    loaded: dict[str, Version] = field(default_factory=lambda: {BASELINE_ID: Version()})
    installed: Version = field(default_factory=Version)

    def load(self, folder: Path, name: str, tier: Tier, any_precision: bool, ctx: Context) -> int:
        """Build the candidate in `folder` for a tier; return the bytes its own weights took."""
        self.activate(BASELINE_ID)
        ctx = replace(ctx, tier=tier, precision="any" if any_precision else "same")
        before = _private_bytes()
        self.loaded[name] = build(self.model, folder, f"{name[:16]}_{tier.value}", ctx)
        return max(0, _private_bytes() - before)

    def activate(self, name: str) -> Version:
        """Remove what is installed and install `name`.

        Raises:
            Fault: load_error when no such version is loaded.
        """
        if name not in self.loaded:
            raise Fault(Reason.LOAD_ERROR, f"no version {name[:12]} is loaded")
        for module, _ in self.installed.forwards:
            module.__dict__.pop("forward", None)
        self.installed = self.loaded[name]
        for module, forward in self.installed.forwards:
            module.forward = forward
        return self.installed

    def drop(self) -> None:
        """Install the baseline and forget the rest."""
        self.activate(BASELINE_ID)
        self.loaded = {BASELINE_ID: Version()}


def _private_bytes() -> int:
    """Private memory of this process: what repacked weights add to, and shared ones do not."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        fields = statm.read().split()
    return (int(fields[1]) - int(fields[2])) * 4096
