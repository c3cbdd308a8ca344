"""Percentiles of a trace: lengths, gaps between arrivals, requests in flight."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from strop.core import StropError
from strop.observe.records import Request, Trace

__all__ = ["ASSUMED_TOK_S", "Percentiles", "Summary", "summary"]

ASSUMED_TOK_S = 50.0
"""Output tokens a second of one request, where the trace has no durations."""

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Percentiles of one quantity, linearly interpolated, and its mean and maximum."""

    p10: float
    p50: float
    p90: float
    p99: float
    mean: float
    max: float


@dataclass(frozen=True, slots=True)
class Summary:
    """What a trace looks like in numbers."""

    requests: int
    sessions: int
    """Sessions that the trace names; 0 when it names none."""
    span_s: float
    """Seconds from the first arrival to the last; the longest session's when per session."""
    isl: Percentiles
    osl: Percentiles
    interarrival_s: Percentiles | None
    """None when no two requests share a clock."""
    concurrency: Percentiles
    """Requests in flight at the moment of an arrival, the arriving one included."""
    concurrency_estimated: bool
    """True when a duration had to be assumed for at least one request."""
    concurrency_note: str
    """How the concurrency came about, for the reader of the figure."""
    cached_share: float
    """Share of all input tokens that an earlier request had as its prefix."""


def summary(trace: Trace, tok_s: float = ASSUMED_TOK_S) -> Summary:
    """Sum a trace up.

    Args:
        trace: At least one request.
        tok_s: Output tokens a second that a request is assumed to get when the trace has no
            duration for it; time to first token is not counted.

    Raises:
        StropError: the trace has no requests, or `tok_s` is not above 0.
    """
    if not trace.requests:
        raise StropError(f"{trace.path}: no requests to sum up")
    if not 0 < tok_s < float("inf"):
        raise StropError(f"an output rate above 0 tok/s is expected, got {tok_s}")
    clocks = _clocks(trace)
    arrivals = [np.sort(np.array([r.arrival_s for r in clock])) for clock in clocks]
    gaps = np.concatenate([np.diff(times) for times in arrivals])
    isl = np.array([r.isl for r in trace.requests], np.float64)
    cached = sum(r.cached_prefix for r in trace.requests)
    return Summary(
        requests=len(trace.requests),
        sessions=len({r.session for r in trace.requests if r.session}),
        span_s=max(float(times[-1] - times[0]) for times in arrivals),
        isl=_percentiles(isl),
        osl=_percentiles(np.array([r.osl for r in trace.requests], np.float64)),
        interarrival_s=_percentiles(gaps) if gaps.size else None,
        concurrency=_percentiles(np.concatenate([_in_flight(c, tok_s) for c in clocks])),
        concurrency_estimated=_assumed(trace) > 0,
        concurrency_note=_note(trace, tok_s),
        cached_share=cached / float(isl.sum()),
    )


def _clocks(trace: Trace) -> list[list[Request]]:
    """Group the requests whose arrivals can be compared."""
    if not trace.per_session:
        return [list(trace.requests)]
    sessions: defaultdict[str, list[Request]] = defaultdict(list)
    for request in trace.requests:
        sessions[request.session].append(request)
    return list(sessions.values())


def _in_flight(requests: list[Request], tok_s: float) -> _Floats:
    arrivals = np.array([r.arrival_s for r in requests])
    ends = np.array([r.arrival_s + (r.duration_s or r.osl / tok_s) for r in requests])
    begun = np.searchsorted(np.sort(arrivals), arrivals, side="right")
    ended = np.searchsorted(np.sort(ends), arrivals, side="right")
    # A duration below the clock's resolution would end a request before it began.
    return np.asarray(np.maximum(begun - ended, 1), np.float64)


def _assumed(trace: Trace) -> int:
    return sum(r.duration_s == 0 for r in trace.requests)


def _note(trace: Trace, tok_s: float) -> str:
    assumed = _assumed(trace)
    parts = ["within one session, as sessions share no clock"] if trace.per_session else []
    if assumed:
        share = f"{assumed} of {len(trace.requests)} requests"
        parts.append(f"estimate: {tok_s:g} output tok/s assumed for {share} without a duration")
    return "; ".join(parts) or "from the durations in the trace"


def _percentiles(values: _Floats) -> Percentiles:
    p10, p50, p90, p99 = (float(p) for p in np.percentile(values, (10, 50, 90, 99)))
    return Percentiles(p10, p50, p90, p99, float(values.mean()), float(values.max()))
