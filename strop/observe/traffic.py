"""Read a trace of requests, whatever its format."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

from strop.core import StropError
from strop.observe.formats import azure, mooncake, strop, weka
from strop.observe.formats.lines import Line, lines
from strop.observe.records import Request, Trace

__all__ = ["FORMATS", "Request", "Trace", "read"]

_Reader = Callable[[Iterator[Line], Counter[str]], Iterator[Request]]

_READERS: dict[str, _Reader] = {
    "azure": azure.read,
    "mooncake": mooncake.read,
    "weka": weka.read,
    "strop": strop.read,
}
FORMATS = ("auto", *_READERS)


def read(path: Path, format: str = "auto", limit: int = 0, max_isl: int = 0, max_osl: int = 0) -> Trace:
    """Read a trace, plain or gzipped.

    Args:
        path: The trace file.
        format: One of `FORMATS`; "auto" goes by the first line, not by the file's name.
        limit: Look at the first so many requests of the file only; 0 means all.
        max_isl: Leave out requests with a longer input, in tokens; 0 keeps all.
        max_osl: Leave out requests with a longer output, in tokens; 0 keeps all.

    Returns:
        The requests with `arrival_s` counted from the earliest one (from the session's start
        where the format has no common clock), and how many were left out.

    Raises:
        StropError: the file is missing, empty, damaged or of another format, a line is wrong
            (its number is named), or no request is left.
    """
    if format not in FORMATS:
        raise StropError(f"traffic.format: one of {', '.join(FORMATS)} expected, got {format!r}")
    rows = lines(path)
    first = next(rows, None)
    if first is None:
        raise StropError(f"{path}: empty; a trace has at least one request")
    kind = _sniff(first) if format == "auto" else format
    dropped: Counter[str] = Counter()
    found = _READERS[kind](itertools.chain([first], rows), dropped)
    asked = list(itertools.islice(found, limit) if limit else found)
    kept = [r for r in asked if _fits(r.isl, max_isl) and _fits(r.osl, max_osl)]
    _refuse_nothing(path, asked, kept)
    per_session = kind == "weka"
    ordered = kept if per_session else _from_zero(kept)
    return Trace(path, kind, tuple(ordered), len(asked) - len(kept), dict(dropped), per_session)


def _fits(length: int, most: int) -> bool:
    return most == 0 or length <= most


def _refuse_nothing(path: Path, asked: list[Request], kept: list[Request]) -> None:
    if not asked:
        raise StropError(f"{path}: no requests; a trace has at least one")
    if not kept:
        raise StropError(
            f"{path}: all {len(asked)} requests are longer than traffic.max_isl or "
            f"traffic.max_osl; the shortest input has {min(r.isl for r in asked)} tokens, "
            f"the shortest output {min(r.osl for r in asked)}"
        )


def _from_zero(requests: list[Request]) -> list[Request]:
    # Servers log a request when it ends, so a file need not be in the order of arrival.
    start_s = min(r.arrival_s for r in requests)
    moved = (replace(r, arrival_s=r.arrival_s - start_s) for r in requests)
    return sorted(moved, key=lambda r: r.arrival_s)


def _sniff(first: Line) -> str:
    if azure.sniff(first):
        return "azure"
    try:
        keys = set(msgspec.json.decode(first.data, type=dict[str, msgspec.Raw]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        keys = set()
    for kind, needed in _KEYS.items():
        if needed <= keys:
            return kind
    known = f"{','.join(azure.COLUMNS)} (azure); " + "; ".join(
        f"{text} ({kind})" for kind, text in _EXPECTED.items()
    )
    raise first.wrong(f"no known trace format; a first line is one of: {known}")


_KEYS = {
    "mooncake": {"timestamp", "input_length"},
    "weka": {"block_size", "requests"},
    "strop": {"isl", "osl"},
}
_EXPECTED = {"mooncake": mooncake.EXPECTED, "weka": weka.EXPECTED, "strop": strop.EXPECTED}
