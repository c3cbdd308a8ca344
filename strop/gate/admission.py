"""Static admission: what can be refused without running anything. Triage, never acceptance."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, NoReturn

from strop.core import Candidate, Fault, Reason
from strop.gate.case import Case

__all__ = ["MANIFEST_KEYS", "admit", "demand", "precision", "width"]

MANIFEST_KEYS: dict[str, type] = {
    "parent": str,
    "author": str,
    "target": str,
    "precision": str,
    "threads": int,
    "phase": str,
    "description": str,
}
PRECISIONS = {"same": 0, "bf16": 16, "int8": 8, "fp8": 8, "int4": 4}
"""What a manifest may declare, and the bits of one weight then."""
_PHASES = ("all", "decode")
"""Steps that a version is for; an engine that can leaves the others to the baseline."""
_BITS = {"float64": 64, "float32": 32, "bfloat16": 16, "float16": 16}
_SUFFIXES = {".py", ".toml", ".cu", ".cuh", ".cpp", ".h", ".md"}
_MAX_BYTES = 1 << 20
_NOTED = {
    "ctypes",
    "os",
    "sys",
    "subprocess",
    "threading",
    "multiprocessing",
    "socket",
    "gc",
    "inspect",
}


def demand(case: Case) -> str:
    """Demand what can be demanded without running anything. Raises what `admit` raises."""
    return admit(case.candidate, case.policy.allow_precision_change)


def admit(candidate: Candidate, allow_precision_change: bool) -> str:
    """Return what was looked at.

    Raises:
        Fault: not_admitted, with the file and line to mend.
    """
    _check_files(candidate.files)
    trees = {name: _parse(name, text) for name, text in candidate.files.items() if name.endswith(".py")}
    _check_build(trees["forward.py"])
    declared = precision(candidate)
    if declared != "same" and not allow_precision_change:
        _refuse(f"precision {declared!r} needs policy.allow_precision_change in the deployment")
    size = sum(len(text.encode()) for text in candidate.files.values())
    noted = sorted({name for tree in trees.values() for name in _imports(tree)} & _NOTED)
    note = f"; imports to read: {', '.join(noted)}" if noted else ""
    return f"{len(trees)} sources, {size} bytes, precision {declared}{note}"


def precision(candidate: Candidate) -> str:
    """Return the precision that the manifest declares, "same" when it declares none."""
    return str(_manifest(candidate.files["manifest.toml"]).get("precision", "same"))


def width(candidate: Candidate, dtype: str) -> float:
    """Return the declared width of a weight as a share of the baseline's, at most 1."""
    bits = PRECISIONS[precision(candidate)]
    return min(1.0, bits / _BITS.get(dtype, 32)) if bits else 1.0


def _check_files(files: Mapping[str, str]) -> None:
    for name in ("forward.py", "manifest.toml"):
        if name not in files:
            _refuse(f"the candidate has no {name}")
    for name in files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or path.suffix not in _SUFFIXES:
            _refuse(f"{name!r} is no file a candidate may have")
    if sum(len(text.encode()) for text in files.values()) > _MAX_BYTES:
        _refuse(f"the candidate is larger than {_MAX_BYTES} bytes")


def _manifest(text: str) -> dict[str, Any]:
    try:
        manifest = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        _refuse(f"manifest.toml: {error}")
    for key, value in manifest.items():
        kind = MANIFEST_KEYS.get(key)
        if kind is None:
            _refuse(f"manifest.toml: unknown key {key!r}; known: {', '.join(MANIFEST_KEYS)}")
        if not isinstance(value, kind):
            _refuse(f"manifest.toml: {key} must be {kind.__name__}, not {value!r}")
    if manifest.get("precision", "same") not in PRECISIONS:
        _refuse(f"manifest.toml: precision must be one of {', '.join(PRECISIONS)}")
    if manifest.get("phase", "all") not in _PHASES:
        _refuse(f"manifest.toml: phase must be one of {', '.join(_PHASES)}")
    return manifest


def _parse(name: str, text: str) -> ast.Module:
    try:
        return ast.parse(text, name)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        _refuse(f"{name}, line {line}: {getattr(error, 'msg', error)}")


def _check_build(tree: ast.Module) -> None:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "build":
            if len(node.args.args) == 2:
                return
            _refuse(f"forward.py, line {node.lineno}: build takes (model, ctx)")
    _refuse("forward.py defines no build(model, ctx)")


def _imports(tree: ast.Module) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def _refuse(detail: str) -> NoReturn:
    raise Fault(Reason.NOT_ADMITTED, detail)
