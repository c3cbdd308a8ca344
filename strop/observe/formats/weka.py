"""Traces of coding-agent sessions: one session a line, its requests inside.

Format: https://github.com/callanjfox/kv-cache-tester (Weka), with the block ids of an input
run-length coded as `hash_runs` = [[first id, count], ...]. An id stands for a block together
with everything before it. Times count from the start of the session; when the session itself
started is not known.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import Annotated

import msgspec

from strop.observe.formats.lines import Line, decode
from strop.observe.records import MAX_TOKENS, Request

__all__ = ["EXPECTED", "read"]

EXPECTED = '{"id": ..., "block_size": tokens, "requests": [{"t", "in", "out", "hash_runs"}, ...]}'

_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
_Count = Annotated[int, msgspec.Meta(gt=0, le=MAX_TOKENS)]
_Run = tuple[Annotated[int, msgspec.Meta(ge=0)], _Count]


class _Call(msgspec.Struct, tag_field="type", tag="n", rename={"isl": "in", "osl": "out"}):
    t: _Seconds
    isl: _Count
    osl: Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]
    hash_runs: list[_Run]
    api_time: _Seconds = 0.0


class _StreamedCall(_Call, tag="s"):
    pass


class _Subagent(msgspec.Struct, tag_field="type", tag="subagent"):
    t: _Seconds
    agent_id: str
    requests: list[_Call | _StreamedCall]


class _Session(msgspec.Struct):
    id: str
    block_size: _Count
    requests: list[_Call | _StreamedCall | _Subagent]


def read(lines: Iterator[Line], dropped: Counter[str]) -> Iterator[Request]:
    """Yield the requests of each session, a subagent's calls among its parent's.

    Sessions whose requests equal an earlier session's are dropped, and so are requests that
    were broken off before their first token. Both are counted in `dropped`. `cached_prefix` is
    the longest leading run of blocks that the session had before.

    Raises:
        StropError: a line is no JSON or a field is missing or wrong.
    """
    decoder = msgspec.json.Decoder(_Session)
    seen: set[bytes] = set()
    for line in lines:
        session = decode(decoder, line, EXPECTED)
        content = hashlib.sha256(msgspec.json.encode(session.requests)).digest()
        if content in seen:
            dropped["repeated sessions"] += 1
            continue
        seen.add(content)
        yield from _requests(session, line, dropped)


def _requests(session: _Session, line: Line, dropped: Counter[str]) -> Iterator[Request]:
    seen: set[int] = set()
    for arrival_s, call in sorted(_calls(session), key=lambda timed: timed[0]):
        blocks = sum(count for _, count in call.hash_runs)
        if (blocks - 1) * session.block_size >= call.isl:
            raise line.wrong(f"hash_runs: {blocks} blocks are more than {call.isl} tokens fill")
        cached = _seen_blocks(call.hash_runs, seen) * session.block_size
        for first, count in call.hash_runs:
            seen.update(range(first, first + count))
        if call.osl == 0:
            dropped["requests without output"] += 1
            continue
        cached = min(cached, call.isl)
        yield Request(arrival_s, call.isl, call.osl, cached, session.id, call.api_time)


def _calls(session: _Session) -> Iterator[tuple[float, _Call]]:
    for entry in session.requests:
        if isinstance(entry, _Subagent):
            yield from ((entry.t + call.t, call) for call in entry.requests)
        else:
            yield entry.t, entry


def _seen_blocks(runs: list[_Run], seen: set[int]) -> int:
    """Count the leading blocks that were seen before.

    As an id stands for all that comes before it too, a block was seen only if all blocks
    before it were, so the end of the seen part can be bisected.
    """
    total = 0
    for first, count in runs:
        ids = range(first, first + count)
        known = bisect_left(ids, True, key=lambda block: block not in seen)
        total += known
        if known < count:
            break
    return total
