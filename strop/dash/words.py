"""How numbers and names are written, in the terminal and in the report alike.

What a candidate wrote or caused (its details, its choices) is untrusted: it never reaches a
terminal with its control characters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from strop.core import Cluster, Fingerprint, Interval, Param, TokenSource, Verdict, Workload

__all__ = [
    "clean",
    "cluster",
    "hardware",
    "interval",
    "one_line",
    "params",
    "ratio",
    "ratios",
    "result",
    "seconds",
    "short_id",
    "tokens",
    "workload",
]

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""ANSI escapes begin with one of the first; the last ones turn the direction of a line around."""
_UNSET = (0, False, "", "off", "none")


def clean(text: str) -> str:
    """Return the text without control characters; tabs and line ends stay."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(text: str, most: int = 160) -> str:
    """Return the text on one line, without control characters, cut to `most` characters."""
    flat = clean(" ".join(text.split()))
    return flat if len(flat) <= most else flat[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def params(chosen: Mapping[str, Param]) -> str:
    """Return the choices that were made; those that leave something off are not named."""
    made = [f"{name}={value}" for name, value in chosen.items() if value not in _UNSET]
    return one_line(" ".join(made)) or "nothing set"


def ratio(value: float, sign: str = "x", near: float | None = None) -> str:
    """Return a ratio with as many digits as tell it from 1: 1.012x, 1.83x, 12.4x.

    Args:
        value: baseline time over candidate time.
        sign: written behind it.
        near: the ratio whose digits to use, for the ends of an interval.
    """
    middle = value if near is None else near
    digits = 3 if abs(middle - 1) < 0.1 else 2 if middle < 10 else 1
    return f"{value:.{digits}f}{sign}"


def ratios(found: Interval, between: str = "..", sign: str = "") -> str:
    """Return the ends of an interval: 1.79..1.88."""
    low = ratio(found.low, sign, found.ratio)
    return f"{low}{between}{ratio(found.high, sign, found.ratio)}"


def interval(found: Interval) -> str:
    """Return a ratio and its interval: 1.83x (1.79..1.88)."""
    return f"{ratio(found.ratio)} ({ratios(found)})"


def seconds(value: float) -> str:
    """Return a duration: 0.42 s, 12.3 s, 4 min 12 s, 1 h 05 min."""
    if value < 99.95:
        return f"{value:.2f} s" if value < 1 else f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def short_id(id: str) -> str:
    """Return the part of an id that people read."""
    return one_line(id[:12])


def result(verdict: Verdict) -> str:
    """Return how a verdict ended: passed, inconclusive, or failed and why."""
    reason = f" {verdict.reason.value}" if verdict.reason else ""
    return f"{verdict.status.value}{reason}"


def cluster(found: Cluster) -> str:
    """Return what the requests of a cluster look like."""
    percent = 100 * found.weight
    share = f"{percent:.0f} % of requests" if percent >= 1 else f"{percent:.2g} % of requests"
    if found.isl_range == found.osl_range == (1, 1):
        return f"one call, {share}"
    size = f"{found.isl:,} in, {found.osl:,} out"
    return f"{size}, {found.concurrency} in flight, {share}"


def hardware(found: Fingerprint) -> str:
    """Return what was measured on."""
    cores, threads = _count(found.cores, "core"), _count(found.threads, "thread")
    return one_line(f"{found.device}, {cores}, {threads}, {found.dtype}")


def workload(found: Workload) -> str:
    """Return what was asked of the engine."""
    if not found.requests:
        return one_line(f"{found.name}: its own inputs, version {found.version}")
    size = f"{found.requests:,} requests in {_count(len(found.clusters), 'cluster')}"
    return one_line(f"{found.name}: {size}, version {found.version}")


def tokens(source: TokenSource) -> str:
    """Return where the measured tokens came from."""
    return "real (cut from text)" if source is TokenSource.REAL else "synthetic (random token ids)"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
