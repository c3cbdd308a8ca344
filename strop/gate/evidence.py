"""What the pairs of one tier say about speed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strop.core import Interval

__all__ = ["SpeedDecision"]


@dataclass(frozen=True, slots=True)
class SpeedDecision:
    """A ratio with its interval for the whole workload and for each cluster, and the evidence."""

    overall: Interval
    clusters: Mapping[int, Interval]
    e_value: float
    """Evidence for a gain above delta."""
    futility: float
    """Evidence for a gain below what the policy calls worth the while."""
