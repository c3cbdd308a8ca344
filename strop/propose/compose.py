"""From options to a candidate: the sources it needs, a readable forward.py, a manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import PurePosixPath

from strop.core import BASELINE_ID, Candidate, StropError
from strop.propose.rewrites import space
from strop.propose.rewrites.space import Option, Value

__all__ = ["compose", "compose_flags", "compose_vllm", "read"]

_NO_ARGUMENTS = ("scope", "threads")
_KEPT = ("norm", "mlp")
"""Modules that a rewrite of modules leaves alone under the neutral choice."""

_FORWARD = '''"""{description}"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from . import {source}


def build(model: nn.Module, ctx: Any) -> Mapping[str, Callable[..., Any]]:
    """Return new forwards by module path; the empty path is the whole forward pass."""
    return {source}.build(
        model,
        ctx,
{arguments}    )
'''


def compose(options: Mapping[str, Value], author: str, parent: str = BASELINE_ID) -> Candidate:
    """Make a rewrite; `space.SPACE` has the options. Those left out take their neutral choice.

    Raises:
        StropError: an unknown option, or a choice that it does not have.
    """
    chosen = _checked(space.SPACE, options)
    files = list(space.SHARED_FILES)
    for option in _used(chosen):
        files += option.files.get(chosen[option.name], ())
    if chosen["scope"] == "whole":
        arguments = {o.name: chosen[o.name] for o in _used(chosen) if o.name not in _NO_ARGUMENTS}
        return _candidate("llama", arguments, files, _threads(chosen), author, parent)
    arguments = {
        option.name: "keep" if option.name in _KEPT and _is_neutral(option, chosen) else value
        for option in _used(chosen)
        if option.name not in _NO_ARGUMENTS
        for value in (chosen[option.name],)
    }
    return _candidate("modules", arguments, files, _threads(chosen), author, parent)


def compose_flags(options: Mapping[str, Value], author: str, parent: str = BASELINE_ID) -> Candidate:
    """Make a candidate that only sets the framework's flags; `space.FLAGS` has the options.

    Raises:
        StropError: an unknown option, or a choice that it does not have.
    """
    chosen = _checked(space.FLAGS, options)
    arguments = {name: value for name, value in chosen.items() if name not in _NO_ARGUMENTS}
    return _candidate("flags", arguments, space.FLAG_FILES, _threads(chosen), author, parent)


def compose_vllm(options: Mapping[str, Value], author: str, parent: str = BASELINE_ID) -> Candidate:
    """Make a rewrite of a Llama on vLLM's layers; `space.VLLM` has the options.

    Raises:
        StropError: an unknown option, or a choice that it does not have.
    """
    chosen = _checked(space.VLLM, options)
    used = [option for option in space.VLLM if _counts(option.name, chosen)]
    files = list(space.VLLM_FILES)
    for option in used:
        files += option.files.get(chosen[option.name], ())
    arguments = {option.name: chosen[option.name] for option in used if option.name != "phase"}
    settings: dict[str, Value] = {"phase": "decode"} if chosen["phase"] == "decode" else {}
    return _candidate("decoder", arguments, files, settings, author, parent)


def _counts(name: str, chosen: Mapping[str, Value]) -> bool:
    """Whether an option of `space.VLLM` changes anything beside the others."""
    fused = chosen["mlp"] == "fused"
    if name == "gate_up":
        return not fused
    if name == "gate_up_tile" and fused:
        return True
    return not name.endswith("_tile") or chosen[name.removesuffix("_tile")] == "triton"


def _used(chosen: Mapping[str, Value]) -> list[Option]:
    """Return the options that count in this scope."""
    if chosen["scope"] == "whole":
        return list(space.SPACE)
    return [o for o in space.SPACE if o.name == "scope" or o.name in space.MODULE_OPTIONS]


def _is_neutral(option: Option, chosen: Mapping[str, Value]) -> bool:
    return chosen[option.name] == option.choices[0]


def _threads(chosen: Mapping[str, Value]) -> Mapping[str, Value]:
    return {"threads": chosen["threads"]}


def _candidate(
    source: str,
    arguments: Mapping[str, Value],
    files: Sequence[str],
    settings: Mapping[str, Value],
    author: str,
    parent: str,
) -> Candidate:
    """Gather the files side by side; `settings` are further entries of the manifest."""
    texts = {PurePosixPath(name).name: read(name) for name in dict.fromkeys(files)}
    description = f"{source}: " + ", ".join(f"{name} {value}" for name, value in arguments.items())
    lines = "".join(f"        {name}={_quoted(value)},\n" for name, value in arguments.items())
    texts["forward.py"] = _FORWARD.format(description=description, source=source, arguments=lines)
    manifest: dict[str, Value] = {
        "author": author,
        "parent": parent,
        "precision": _precision(arguments),
        **settings,
        "description": description,
    }
    texts["manifest.toml"] = "".join(f"{key} = {_quoted(value)}\n" for key, value in manifest.items())
    return Candidate(texts, author, parent)


def _checked(declared: Sequence[Option], options: Mapping[str, Value]) -> dict[str, Value]:
    known = {option.name: option for option in declared}
    for name, value in options.items():
        if name not in known:
            raise StropError(f"no option {name!r}; known: {', '.join(known)}")
        choices = known[name].choices
        if value not in choices or isinstance(value, bool):
            listed = ", ".join(map(str, choices))
            raise StropError(f"option {name}: one of {listed} is expected, got {value!r}")
    return space.full(declared, options)


def _precision(arguments: Mapping[str, Value]) -> str:
    """Return the lowest precision among the choices that count."""
    changed = {o.precision.get(arguments.get(o.name, "")) for o in space.SPACE}
    return next((precision for precision in ("int8", "bf16") if precision in changed), "same")


def _quoted(value: Value) -> str:
    """Write a value as both Python and TOML read it."""
    if isinstance(value, int):
        return str(value)
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in escaped) + '"'


def read(name: str) -> str:
    """Return the source of a rewrite by its path under rewrites."""
    return resources.files("strop.propose.rewrites").joinpath(name).read_text(encoding="utf-8")
