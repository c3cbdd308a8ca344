"""Start the engine that a deployment names."""

from __future__ import annotations

from collections.abc import Callable

from strop.config import Deployment
from strop.core import StropError
from strop.engine.client import ProcessEngine
from strop.engine.remote import RemoteEngine

__all__ = ["HOLDERS", "KINDS", "start"]

HOLDERS = {"torch": "strop.engine.torch.holder", "toy": "strop.engine.toy"}
"""Engine kind to the module that holds its weights, for engines that strop owns."""
KINDS = (*HOLDERS, "vllm")


def start(deployment: Deployment, progress: Callable[[str], None]) -> RemoteEngine:
    """Start the deployment's engine and wait until it holds the model.

    Raises:
        StropError: an unknown kind of engine, or what its class raises.
    """
    kind = deployment.engine.kind
    any_precision = deployment.policy.allow_precision_change
    if kind == "vllm":
        from strop.engine.vllm.engine import VllmEngine

        return VllmEngine(deployment.engine, progress, any_precision=any_precision)
    if kind not in HOLDERS:
        raise StropError(f"engine.kind {kind!r}: one of {', '.join(KINDS)} is expected")
    return ProcessEngine(HOLDERS[kind], deployment.engine, progress, any_precision=any_precision)
