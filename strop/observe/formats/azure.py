"""Azure's public LLM inference traces: CSV with a time and two lengths for each request.

Format: https://github.com/Azure/AzurePublicDataset (AzureLLMInferenceDataset2023 and 2024).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

from strop.observe.formats.lines import Line
from strop.observe.records import MAX_TOKENS, Request

__all__ = ["COLUMNS", "read", "sniff"]

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_EXPECTED = "the columns " + ",".join(COLUMNS)


def sniff(line: Line) -> bool:
    """Tell whether the first line of a file is this format's header."""
    return set(COLUMNS) <= set(_cells(line))


def read(lines: Iterator[Line], dropped: Counter[str]) -> Iterator[Request]:
    """Yield the requests of an Azure trace. The trace says nothing of prefixes and sessions.

    Raises:
        StropError: a header without the three columns, or a row that does not fit it.
    """
    header = next(lines)
    if not sniff(header):
        raise header.wrong(f"expected a header with {_EXPECTED}")
    names = _cells(header)
    time_at, isl_at, osl_at = (names.index(column) for column in COLUMNS)
    for line in lines:
        cells = _cells(line)
        if len(cells) != len(names):
            raise line.wrong(f"expected {len(names)} cells, as in the header; got {len(cells)}")
        yield Request(
            arrival_s=_time_s(line, cells[time_at]),
            isl=_length(line, "ContextTokens", cells[isl_at]),
            osl=_length(line, "GeneratedTokens", cells[osl_at]),
        )


def _cells(line: Line) -> list[str]:
    # No field of this format holds a comma, so quotes can only wrap a whole cell.
    text = line.data.decode("utf-8", errors="replace")
    return [cell.strip().strip('"') for cell in text.split(",")]


def _time_s(line: Line, cell: str) -> float:
    try:
        moment = datetime.fromisoformat(cell)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return moment.timestamp()
    except (ValueError, OverflowError):
        raise line.wrong(
            f"TIMESTAMP: expected a time such as 2023-11-16 18:15:46.680, got {cell[:40]!r}"
        ) from None


def _length(line: Line, column: str, cell: str) -> int:
    digits = cell.isascii() and cell.isdigit() and len(cell) < 12
    if not digits or not 0 < int(cell) <= MAX_TOKENS:
        raise line.wrong(f"{column}: expected a number of tokens above 0, got {cell[:40]!r}")
    return int(cell)
