"""Where the time goes and how much of it physics demands: the targets of a search."""

from __future__ import annotations

from collections.abc import Mapping

from strop.core import Cluster, Phase, Target, Tier
from strop.engine.contract import Description

__all__ = ["floor_ms", "targets"]


def floor_ms(description: Description, tier: Tier, bandwidth: float) -> float:
    """Return the least ms of one decode step, or of a module's call.

    It has to read its weights once, at `bandwidth` bytes/s.
    """
    return description.decode_bytes[tier] / bandwidth * 1e3


def targets(
    clusters: tuple[Cluster, ...],
    step_ms: Mapping[int, Mapping[Phase, float]],
    floor_ms: float,
) -> list[Target]:
    """Return one target a cluster and phase, most time per request first.

    Args:
        clusters: of the workload.
        step_ms: baseline ms by cluster and phase, for one prefill and one decode step.
        floor_ms: floor of one step, which a prefill cannot beat either.
    """
    found = [
        (_share(cluster, phase, ms), Target(cluster.id, phase, ms, floor_ms))
        for cluster in clusters
        for phase, ms in step_ms[cluster.id].items()
    ]
    return [target for _, target in sorted(found, key=lambda pair: -pair[0])]


def _share(cluster: Cluster, phase: Phase, ms: float) -> float:
    """Time that a request of this cluster spends in the phase, weighted by how often it comes."""
    return cluster.weight * ms * (cluster.osl - 1 if phase is Phase.DECODE else 1)
