"""Numbered lines of a plain or gzipped file, and decoding that says which line is wrong."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar, cast

import msgspec

from strop.core import StropError

__all__ = ["Line", "decode", "lines"]

T = TypeVar("T")

_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_LONGEST_LINE = 64 << 20
"""Bytes; a file without line ends must not fill the memory."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line that is not blank, and where it stands."""

    path: Path
    number: int
    data: bytes

    def wrong(self, what: str) -> StropError:
        """Return the error that names this line."""
        return StropError(f"{self.path}:{self.number}: {what}")


def lines(path: Path) -> Iterator[Line]:
    """Yield the lines of a file that are not blank, unzipped when the content is gzip.

    Raises:
        StropError: the file is missing, unreadable, damaged, or has a line over 64 MiB.
    """
    with _errors_named(path), _opened(path) as file:
        number = 0
        while data := file.readline(_LONGEST_LINE + 1):
            number += 1
            if len(data) > _LONGEST_LINE:
                raise StropError(f"{path}:{number}: line over 64 MiB; this is no trace")
            if number == 1:
                data = data.removeprefix(_BOM)
            if data := data.strip():
                yield Line(path, number, data)


def decode(decoder: msgspec.json.Decoder[T], line: Line, expected: str) -> T:
    """Decode one line of JSON.

    Raises:
        StropError: it is no JSON, or a field is missing or wrong; names the line and field.
    """
    try:
        return decoder.decode(line.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        detail = " ".join(str(error).split())
        raise line.wrong(f"{detail} (expected: {expected})") from None


@contextmanager
def _errors_named(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise StropError(f"{path}: no such trace file") from None
    except IsADirectoryError:
        raise StropError(f"{path}: a folder; `traffic.trace` must name a trace file") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise StropError(f"{path}: damaged gzip file: {error}") from None
    except (OSError, ValueError) as error:
        raise StropError(f"{path}: cannot be read: {error}") from None


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    with path.open("rb") as raw:
        if raw.peek(2)[:2] != _GZIP:
            yield raw
            return
        with gzip.open(raw) as unzipped:
            yield cast(IO[bytes], unzipped)
