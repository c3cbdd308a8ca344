"""One process at a time works on a deployment; the kernel lets go of the lock when it dies."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import urllib.parse
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from strop.blobs import explained
from strop.core import StropError

__all__ = ["file_name", "hold"]

_LONGEST = 150
"""Longest name of a lock file that is not cut; file systems end at 255."""


@contextlib.contextmanager
def hold(folder: Path, name: str) -> Iterator[None]:
    """Hold the lock of a deployment while the block runs.

    Raises:
        StropError: another process holds it; it is named.
    """
    path = folder / file_name(name)
    with explained(path):
        # Never removed: a lock on a name that was unlinked would exclude nobody.
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _claim(handle, name, folder)
        yield
    finally:
        os.close(handle)


def file_name(name: str) -> str:
    """Return a file name that is safe, and that no other deployment has."""
    quoted = urllib.parse.quote(name, safe="")
    if len(quoted) > _LONGEST:
        quoted = f"{quoted[:_LONGEST]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return f"{quoted}.lock"


def _claim(handle: int, name: str, folder: Path) -> None:
    with explained(folder):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StropError(
                f"another strop (pid {_holder(handle)}) is optimising {name!r} in {folder}; "
                "wait for it, stop it, or give this one its own --home"
            ) from None
        os.ftruncate(handle, 0)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        os.pwrite(handle, json.dumps({"pid": os.getpid(), "since": since}).encode(), 0)


def _holder(handle: int) -> str:
    """Return the pid that the holder wrote; it may be just about to."""
    try:
        return str(json.loads(os.pread(handle, 4096, 0))["pid"])
    except (ValueError, KeyError, TypeError):
        return "not written yet"
