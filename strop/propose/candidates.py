"""A candidate from a folder on disk, or from a single forward.py."""

from __future__ import annotations

from pathlib import Path

from strop.core import Candidate, StropError

__all__ = ["read"]


def read(path: Path) -> Candidate:
    """Read every file of a folder that is no cache and not hidden; a single file is its forward.py.

    Raises:
        StropError: a file that is not UTF-8 text or cannot be read, or a folder without any.
    """
    if path.is_file():
        return Candidate({"forward.py": _text(path), "manifest.toml": ""}, author="file")
    files = {
        str(file.relative_to(path)): _text(file)
        for file in sorted(path.rglob("*"))
        if file.is_file() and not _ignored(file.relative_to(path))
    }
    if "forward.py" not in files:
        raise StropError(f"{path}: a candidate's folder has a forward.py and a manifest.toml")
    files.setdefault("manifest.toml", "")
    return Candidate(files, author="folder")


def _ignored(path: Path) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in path.parts)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise StropError(f"{path}: not UTF-8 text; a candidate has no binary files") from None
    except OSError as error:
        raise StropError(f"{path}: {error.strerror}") from None
