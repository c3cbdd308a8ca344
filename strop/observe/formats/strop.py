"""strop's own trace format: one JSON object for each request.

    {"arrival_s": 12.5, "isl": 812, "osl": 96}
    {"arrival_s": 12.9, "isl": 1024, "osl": 40, "cached_prefix": 768, "session": "a7"}

`arrival_s`: seconds on any common clock, not negative; Unix time will do. `isl`, `osl`: tokens,
above 0. Optional: `cached_prefix`, leading tokens of the input that an earlier request had (at
most `isl`); `session`, a name shared by the requests of one conversation; `duration_s`, seconds
from arrival to the last token. Any other key is an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated

import msgspec

from strop.observe.formats.lines import Line, decode
from strop.observe.records import MAX_TOKENS, Request

__all__ = ["EXPECTED", "read"]

EXPECTED = '{"arrival_s": s, "isl": tokens, "osl": tokens, "cached_prefix"?, "session"?}'

_Tokens = Annotated[int, msgspec.Meta(gt=0, le=MAX_TOKENS)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    arrival_s: _Seconds
    isl: _Tokens
    osl: _Tokens
    cached_prefix: Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)] = 0
    session: str = ""
    duration_s: _Seconds = 0.0


def read(lines: Iterator[Line], dropped: Counter[str]) -> Iterator[Request]:
    """Yield the requests of a trace in strop's own format; the module says what it is.

    Raises:
        StropError: a line is no JSON, or a field is missing, unknown or wrong.
    """
    decoder = msgspec.json.Decoder(_Row)
    for line in lines:
        row = decode(decoder, line, EXPECTED)
        if row.cached_prefix > row.isl:
            raise line.wrong(f"cached_prefix {row.cached_prefix} is longer than isl {row.isl}")
        yield Request(row.arrival_s, row.isl, row.osl, row.cached_prefix, row.session, row.duration_s)
