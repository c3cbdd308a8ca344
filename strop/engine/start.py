"""Start the engine that a deployment names."""

from __future__ import annotations

from collections.abc import Callable

from strop.config import Deployment
from strop.core import StropError
from strop.engine.client import ProcessEngine

__all__ = ["HOLDERS", "start"]

HOLDERS = {"torch": "strop.engine.torch.holder", "toy": "strop.engine.toy"}
"""Engine kind to the module that holds its weights."""


def start(deployment: Deployment, progress: Callable[[str], None]) -> ProcessEngine:
    """Start the deployment's engine and wait until it holds the model.

    Raises:
        StropError: an unknown kind of engine, or what `ProcessEngine` raises.
    """
    kind = deployment.engine.kind
    if kind not in HOLDERS:
        raise StropError(f"engine.kind {kind!r}: one of {', '.join(HOLDERS)} is expected")
    any_precision = deployment.policy.allow_precision_change
    return ProcessEngine(HOLDERS[kind], deployment.engine, progress, any_precision=any_precision)
