"""strop: a continual compiler for inference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strop.ship.apply import apply

__all__ = ["__version__", "apply"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # `apply` pulls in torch; the command line must not pay for it.
    if name == "apply":
        from strop.ship.apply import apply

        return apply
    raise AttributeError(f"module 'strop' has no attribute {name!r}")
