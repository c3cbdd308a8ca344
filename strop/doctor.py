"""What this machine can do for strop, and what to mend."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

from strop.core import StropError
from strop.dash.tables import Finding
from strop.engine import jail
from strop.engine.start import KINDS
from strop.journal import Journal

__all__ = ["examine"]


def examine(home: Path) -> list[Finding]:
    """Look at engines, compiler, GPU, isolation and the journal in `home`."""
    return [
        Finding("engines", True, ", ".join(KINDS)),
        _package("torch", "pip install 'strop[torch]'"),
        _package("transformers", "pip install 'strop[torch]'"),
        _compiler(),
        _gpu(),
        *_layers(),
        _journal(home),
    ]


def _package(name: str, mend: str) -> Finding:
    there = importlib.util.find_spec(name) is not None
    return Finding(name, there, "installed" if there else "missing", mend)


def _compiler() -> Finding:
    path = shutil.which("g++")
    return Finding("g++", path is not None, path or "missing", "without it native rewrites cannot build")


def _gpu() -> Finding:
    there = Path("/dev/nvidia0").exists()
    return Finding("gpu", True, "/dev/nvidia0" if there else "none, and the CPU engines need none")


def _layers() -> list[Finding]:
    held = jail.probe()
    return [Finding(f"jail {x.name}", x.name in held, x.meaning, x.mend) for x in jail.LAYERS]


def _journal(home: Path) -> Finding:
    if not (home / "journal.db").exists():
        return Finding("journal", True, f"none in {home} yet")
    try:
        with Journal.open(home) as journal:
            wrong = journal.check()
    except StropError as error:
        wrong = [str(error)]
    return Finding("journal", not wrong, "; ".join(wrong) or f"{home} is sound")
