"""Import a candidate's folder as a package under a name of its own."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

__all__ = ["import_forward"]


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
