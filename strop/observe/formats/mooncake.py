"""Mooncake's traces: JSON lines with the ids of the blocks that each input is made of.

Format: https://github.com/kvcache-ai/Mooncake (FAST25-release/traces). An id stands for a
block of 512 tokens together with everything before it, so equal ids mean a reusable KV cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import takewhile
from typing import Annotated

import msgspec

from strop.observe.formats.lines import Line, decode
from strop.observe.records import MAX_TOKENS, Request

__all__ = ["BLOCK", "EXPECTED", "read"]

BLOCK = 512
"""Tokens in one block."""
EXPECTED = '{"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [...]}'

_Tokens = Annotated[int, msgspec.Meta(gt=0, le=MAX_TOKENS)]


class _Row(msgspec.Struct):
    timestamp: Annotated[float, msgspec.Meta(ge=0, le=1e15)]
    input_length: _Tokens
    output_length: _Tokens
    hash_ids: list[int] = []


def read(lines: Iterator[Line], dropped: Counter[str]) -> Iterator[Request]:
    """Yield the requests of a Mooncake trace, `timestamp` (ms) as seconds.

    `cached_prefix` is the longest leading run of blocks that requests earlier in the file
    had too: what a prefix cache that forgets nothing would hold.

    Raises:
        StropError: a line is no JSON or a field is missing or wrong.
    """
    decoder = msgspec.json.Decoder(_Row)
    seen: set[int] = set()
    for line in lines:
        row = decode(decoder, line, EXPECTED)
        blocks = sum(1 for _ in takewhile(seen.__contains__, row.hash_ids))
        seen.update(row.hash_ids)
        yield Request(
            arrival_s=row.timestamp / 1000,
            isl=row.input_length,
            osl=row.output_length,
            cached_prefix=min(row.input_length, blocks * BLOCK),
        )
