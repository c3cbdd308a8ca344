"""Install a verified forward pass in any Python program, with guards and a way back.

Inside its guards the new forward runs; outside them the original does, call by call, and the
handle counts why.
"""

from __future__ import annotations

import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from strop.core import Candidate, Fingerprint, Guards, Tier
from strop.engine.candidate_package import write_files
from strop.engine.torch.versions import Context, Version, build, cache_name
from strop.engine.torch.weights import digest

__all__ = ["Handle", "Module", "install", "mismatch"]

Module = nn.Module

_ORIGINAL_ONLY = ("labels", "inputs_embeds", "output_attentions", "output_hidden_states")
"""Arguments of a causal LM that a rewrite is never verified for."""


def mismatch(model: nn.Module, verified: Fingerprint) -> str:
    """Say in one clause what differs between here and where it was verified; "" when nothing does."""
    here = {"torch": str(torch.__version__), "transformers": transformers.__version__}
    for package, version in here.items():
        if verified.versions.get(package, version) != version:
            return f"{package} is {version} here and was {verified.versions[package]}"
    if digest(model) != verified.model_hash:
        return "the model's weights are not the ones it was verified with"
    return ""


class Handle:
    """What is installed on a model. `calls` counts guarded calls, `fallbacks` why others were not."""

    def __init__(self, model: nn.Module, version: str, guards: Guards) -> None:
        self.model = model
        self.version = version
        self.guards = guards
        self.calls = 0
        self.fallbacks: Counter[str] = Counter()
        self.inside = False
        self.folder: tempfile.TemporaryDirectory[str] | None = None
        self._installed: list[nn.Module] = []

    def put(self, module: nn.Module, forward: Callable[..., Any]) -> None:
        """Replace one module's forward by a switch that the guards of the whole model turn."""
        original = module.forward

        def switch(*args: Any, **kwargs: Any) -> Any:
            return forward(*args, **kwargs) if self.inside else original(*args, **kwargs)

        self._set(module, switch)

    def guard(self, version: Version, whole: Callable[..., Any] | None) -> None:
        """Put the guard in front of the whole model's forward."""
        original = self.model.forward
        inner = whole or original
        threads = version.threads

        def guarded(*args: Any, **kwargs: Any) -> Any:
            why = self.why_not(args, kwargs)
            if why:
                self._note(why)
                return original(*args, **kwargs)
            self.calls += 1
            before = torch.get_num_threads()
            self.inside = True
            try:
                if threads:
                    torch.set_num_threads(threads)
                return inner(*args, **kwargs)
            finally:
                self.inside = False
                torch.set_num_threads(before)

        self._set(self.model, guarded)

    def why_not(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """Say which guard a call fails; "" when it passes all."""
        if self.model.training:
            return "the model is in training mode"
        if torch.is_grad_enabled() and any(p.requires_grad for p in self.model.parameters()):
            return "gradients are on: call under torch.no_grad() or inference_mode()"
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        if any(tensor.device.type != self.guards.device for tensor in tensors):
            return f"an input is not on {self.guards.device}"
        if _dtype(self.model) != self.guards.dtype:
            return f"the weights are {_dtype(self.model)}, not {self.guards.dtype}"
        if self.guards.shapes:
            shapes = tuple(tuple(tensor.shape) for tensor in tensors)
            return "" if shapes == self.guards.shapes else f"input shapes {shapes} were not verified"
        return self._why_not_tokens(args, kwargs)

    def _why_not_tokens(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        asked = [name for name in _ORIGINAL_ONLY if kwargs.get(name) not in (None, False)]
        if asked:
            return f"{asked[0]} was asked for"
        tokens = args[0] if args else kwargs.get("input_ids")
        if not isinstance(tokens, torch.Tensor) or tokens.ndim != 2 or len(args) > 1:
            return "the call is not model(input_ids, ...)"
        if tokens.shape[0] > self.guards.max_batch:
            return f"batch {tokens.shape[0]} is larger than the verified {self.guards.max_batch}"
        cache = kwargs.get("cache", kwargs.get("past_key_values"))
        length = tokens.shape[1] + (cache.get_seq_length() if cache is not None else 0)
        if length > self.guards.max_context:
            return f"context is longer than the verified {self.guards.max_context}"
        return ""

    def remove(self) -> None:
        """Put the model's own forwards back."""
        for module in self._installed:
            module.__dict__.pop("forward", None)
        self._installed.clear()
        self.model.__dict__.pop("strop", None)
        if self.folder is not None:
            self.folder.cleanup()

    def _set(self, module: nn.Module, forward: Callable[..., Any]) -> None:
        module.__dict__["forward"] = forward
        self._installed.append(module)

    def _note(self, why: str) -> None:
        if not self.fallbacks:
            warnings.warn(f"strop: the original forward runs: {why}", stacklevel=3)
        self.fallbacks[why] += 1


def install(model: nn.Module, candidate: Candidate, guards: Guards) -> Handle:
    """Build a candidate on `model` and install it behind its guards; `model.strop` is the handle.

    Raises:
        Fault: the candidate's build fails on this model.
    """
    handle = Handle(model, candidate.id, guards)
    handle.folder = tempfile.TemporaryDirectory(prefix="strop-version-")
    folder = Path(handle.folder.name)
    write_files(folder, candidate.files)
    version = build(model, folder, f"live_{candidate.id[:16]}", _context(model, guards))
    whole = None
    for module, forward in version.forwards:
        if module is model:
            whole = forward
        else:
            handle.put(module, forward)
    handle.guard(version, whole)
    model.__dict__["strop"] = handle
    return handle


def _context(model: nn.Module, guards: Guards) -> Context:
    causal = hasattr(model, "generate")
    return Context(
        tier=Tier.SLOW,
        device=guards.device,
        dtype=guards.dtype,
        threads=torch.get_num_threads(),
        max_context=guards.max_context,
        precision="any",
        cache_name=cache_name(model) if causal else "",
    )


def _dtype(model: nn.Module) -> str:
    return str(next(model.parameters()).dtype).removeprefix("torch.")
