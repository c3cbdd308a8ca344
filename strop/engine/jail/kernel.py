"""The few system calls that Python has no name for."""

from __future__ import annotations

import ctypes
import os

__all__ = ["call", "mount", "prctl", "umount", "unshare"]

_libc = ctypes.CDLL(None, use_errno=True)


def call(number: int, *arguments: object) -> int:
    """Make a system call by its number.

    Raises:
        OSError: the kernel said no.
    """
    result: int = _libc.syscall(number, *arguments)
    return _checked(result)


def prctl(option: int, value: int = 0, other: int = 0) -> int:
    """Set something about this process; raises OSError."""
    return _checked(_libc.prctl(option, value, other, 0, 0))


def unshare(flags: int) -> None:
    """Leave namespaces that are shared with the parent; raises OSError."""
    _checked(_libc.unshare(flags))


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """Attach a file system; raises OSError with the name of the target."""
    texts = (source.encode(), target.encode(), kind.encode())
    _checked(_libc.mount(*texts, ctypes.c_ulong(flags), data.encode()), target)


def umount(target: str, flags: int) -> None:
    """Detach a file system; raises OSError."""
    _checked(_libc.umount2(target.encode(), flags), target)


def _checked(result: int, name: str | None = None) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)
    return result
