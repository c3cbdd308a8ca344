"""Content-addressed bytes on disk: the name of a blob is the SHA-256 of its content."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from strop.core import StropError

__all__ = ["Blobs"]


class Blobs:
    """A folder of blobs; a blob that `put` returned survives a power cut."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, data: bytes) -> str:
        """Store bytes and return their digest; a damaged blob of that name is mended.

        Raises:
            OSError: the disk is full or read-only; nothing half-written stays under the name.
        """
        digest = hashlib.sha256(data).hexdigest()
        path = self.path(digest)
        if path.exists() and path.read_bytes() == data:
            return digest
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        for folder in (path.parent, self.root):
            _sync_folder(folder)
        return digest

    def get(self, digest: str) -> bytes:
        """Return a blob's bytes, verified.

        Raises:
            StropError: it is missing or damaged.
        """
        try:
            data = self.path(digest).read_bytes()
        except FileNotFoundError:
            raise StropError(f"blob {digest[:12]} is missing from {self.root}") from None
        if hashlib.sha256(data).hexdigest() != digest:
            raise StropError(
                f"blob {digest[:12]} in {self.root} is damaged; restore it from a backup"
            )
        return data

    def path(self, digest: str) -> Path:
        """Return where a blob lies."""
        return self.root / digest[:2] / digest[2:]


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
