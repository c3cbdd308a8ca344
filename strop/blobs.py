"""Content-addressed bytes on disk: the name of a blob is the SHA-256 of its content."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

from strop.core import StropError

__all__ = ["Blobs", "explained"]

_DIGEST = re.compile(r"[0-9a-f]{64}")


class Blobs:
    """A folder of blobs; one that `put` returned is on the disk under its name, or nowhere."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, data: bytes) -> str:
        """Store bytes durably and return their SHA-256; a damaged blob of that name is mended.

        Raises:
            StropError: the disk is full or may not be written; what was stored before stands.
        """
        digest = hashlib.sha256(data).hexdigest()
        path = self.path(digest)
        with explained(self.root):
            path.parent.mkdir(parents=True, exist_ok=True)
            if not self._holds(path, data):
                _write(path, data)
            # Also for a blob that is there: its writer may have died between rename and sync.
            for folder in (path.parent, self.root, self.root.parent):
                _sync_folder(folder)
        return digest

    def get(self, digest: str) -> bytes:
        """Return a blob's bytes, verified.

        Raises:
            StropError: it is missing, unreadable or damaged, or this is no digest.
        """
        path = self.path(digest)
        try:
            with explained(path):
                data = path.read_bytes()
        except FileNotFoundError:
            raise StropError(f"blob {digest} is missing from {self.root}; restore it") from None
        if hashlib.sha256(data).hexdigest() != digest:
            raise StropError(
                f"blob {digest} is damaged in {self.root}; restore it, or store its content again"
            )
        return data

    def path(self, digest: str) -> Path:
        """Return where a blob lies: two digits of folder, the rest of file name."""
        if not _DIGEST.fullmatch(digest):
            raise StropError(f"{digest!r} is not a SHA-256 in hex, so no blob has that name")
        return self.root / digest[:2] / digest[2:]

    def digests(self) -> list[str]:
        """Return the names of all blobs on disk, sorted; unfinished writes are no blobs."""
        names = (f"{path.parent.name}{path.name}" for path in self.root.glob("*/*"))
        return sorted(name for name in names if _DIGEST.fullmatch(name))

    def _holds(self, path: Path, data: bytes) -> bool:
        try:
            return path.stat().st_size == len(data) and path.read_bytes() == data
        except FileNotFoundError:
            return False


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what the file system complains about into one line; a missing file stays one."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            why = "the disk is full (or a quota is); what was recorded is safe: free some space"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            why = f"{error.strerror}: check who owns it, or choose another --home"
        else:
            why = f"{error.strerror or error}; choose another --home"
        raise StropError(f"{path}: {why}") from error


def _write(path: Path, data: bytes) -> None:
    """Put data under a name in one step: the name never shows half of it."""
    fresh = path.with_name(f".{path.name[:16]}.{secrets.token_hex(8)}")
    try:
        with fresh.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
