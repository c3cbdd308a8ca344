"""Landlock: a second lock on the file system, by path, that no later mount can open.

There is no package for it, so the three system calls are made directly; see landlock(7).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

from strop.engine.jail.kernel import call

__all__ = ["restrict"]

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_VERSION = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}
"""ABI to the number of rights over files that it knows."""
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
"""Rights that a rule on a single file may name."""
_TCP_BIND_AND_CONNECT = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11


class _Ruleset(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("files", "network", "scoped")]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("fd", ctypes.c_int32)]


def restrict(readable: Iterable[str], writable: Iterable[str]) -> None:
    """Allow reading and executing below some paths, everything below others, nothing elsewhere.

    Raises:
        OSError: the kernel has no landlock, or it is switched off.
    """
    abi = call(_CREATE, None, ctypes.c_size_t(0), _VERSION)
    every = (1 << max(count for since, count in _RIGHTS.items() if since <= abi)) - 1
    network = _TCP_BIND_AND_CONNECT if abi >= 4 else 0
    scoped = _ABSTRACT_SOCKETS_AND_SIGNALS if abi >= 6 else 0
    rules = _Ruleset(every, network, scoped)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = call(_CREATE, ctypes.byref(rules), ctypes.c_size_t(size), 0)
    try:
        for path in readable:
            _allow(ruleset, path, _READ & every)
        for path in writable:
            _allow(ruleset, path, every)
        call(_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    if not os.path.exists(path):
        return
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = _Beneath(rights if os.path.isdir(path) else rights & _FILE, fd)
        call(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(fd)
