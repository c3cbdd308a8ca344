"""strop: a continual compiler for inference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strop.ship.apply import apply, model_folder

__all__ = ["__version__", "apply", "model_folder"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # These pull in torch; the command line must not pay for it.
    if name in ("apply", "model_folder"):
        from strop.ship import apply

        return getattr(apply, name)
    raise AttributeError(f"module 'strop' has no attribute {name!r}")
