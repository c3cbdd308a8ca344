"""Use what is live from plain Python: `model = strop.apply(model, "NAME")`."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TypeVar

from strop.config import state_dir
from strop.core import StropError
from strop.engine.torch.guarded import Module, install, mismatch
from strop.engine.torch.source import SHORT_NAMES
from strop.journal import Journal
from strop.ship.registry import Registry

__all__ = ["apply", "model_folder"]

M = TypeVar("M", bound=Module)


def apply(model: M, name: str, *, home: Path | str | None = None) -> M:
    """Install the live version of deployment `name` on `model`, in place, and return the model.

    The version's own files are verified against their hash first. Where this program differs
    from what was verified (other weights, another torch), or a call is outside the guards, the
    original forward runs and a warning says why. Nothing live (never shipped, or rolled back)
    leaves the model as it is.

    Args:
        model: in evaluation mode, with the weights that were optimised.
        name: of the deployment.
        home: folder of the journal; `$STROP_HOME` or `.strop` by default.

    Raises:
        StropError: no such deployment, or its blob is damaged.
    """
    if (handle := model.__dict__.get("strop")) is not None:
        handle.remove()
    with Journal.open(Path(home) if home else state_dir()) as journal:
        registry = Registry(journal)
        if not registry.versions(name):
            raise StropError(f"nothing was ever shipped for {name!r}; `strop status` lists what was")
        version = registry.live(name)
        if version is None:
            return model
        candidate = journal.get_candidate(version.candidate)
    why = mismatch(model, version.fingerprint)
    if why:
        warnings.warn(f"strop: the original forward stays: {why}; optimise again here", stacklevel=2)
        return model
    install(model, candidate, version.guards)
    return model


def model_folder(name: str) -> Path:
    """Return the local folder of a model known by a short name, fetching it the first time.

    Raises:
        StropError: no such short name, or it cannot be fetched.
    """
    if name not in SHORT_NAMES:
        raise StropError(f"{name!r} is no short name; known: {', '.join(SHORT_NAMES)}")
    return SHORT_NAMES[name](lambda line: print(line, file=sys.stderr))
