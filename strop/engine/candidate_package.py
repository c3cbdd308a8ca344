"""A candidate's folder: written out, and imported as a package under a name of its own."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

__all__ = ["import_forward", "write_files"]


def import_forward(folder: Path, name: str) -> ModuleType:
    """Import `forward.py` of a candidate; its other files can be imported relatively.

    The name must be unique in the process: kernels are cached by module and name.
    """
    spec = importlib.util.spec_from_loader(name, None, is_package=True)
    assert spec is not None
    package = importlib.util.module_from_spec(spec)
    package.__path__ = [str(folder)]
    sys.modules[name] = package
    importlib.invalidate_caches()
    return importlib.import_module(f"{name}.forward")


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write text files by their relative paths, making the folders they need."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
