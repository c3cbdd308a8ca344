"""What the engine was asked: requests, and the trace that they stand in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["MAX_TOKENS", "Request", "Trace"]

MAX_TOKENS = 100_000_000
"""A longer input or output is taken for a damaged line."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request. Lengths are in tokens."""

    arrival_s: float
    """Seconds after the trace's first request, or after the session's first (`per_session`)."""
    isl: int
    osl: int
    cached_prefix: int = 0
    """Leading tokens that an earlier request also had; 0 when the trace cannot say."""
    session: str = ""
    duration_s: float = 0.0
    """Seconds from arrival to the last token; 0 when the trace cannot say."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests read from one file, and what was not taken from it."""

    path: Path
    format: str
    requests: tuple[Request, ...]
    """In the order of arrival; in the order of the file when `per_session`."""
    left_out: int = 0
    """Requests longer than the deployment's `max_isl` or `max_osl`."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """What a reader had to leave aside, counted by kind, such as repeated sessions."""
    per_session: bool = False
    """Arrivals count from the session's own start, as the trace tells no common clock."""
