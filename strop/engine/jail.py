"""What a worker gives up before it runs a candidate's code.

Each layer is tried where it will be used, in the forked worker, and the ones that hold are named
in every verdict. What is not contained yet: the file system is readable, and the worker may start
a compiler. See docs/decisions/0003-worker-and-owner.md.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["LAYERS", "Layer", "enter", "probe"]

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_CLONE_NEWIPC = 0x08000000
_CLONE_NEWNET = 0x40000000
_CLONE_NEWUSER = 0x10000000
_NOBODY = 65534
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Layer:
    """One thing given up. `enter` raises OSError where the machine does not allow it."""

    name: str
    meaning: str
    enter: Callable[[], None]


def die_with_parent() -> None:
    """Have the kernel kill this process when the one that forked it dies."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    _checked(_libc().prctl(option, value, 0, 0, 0))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _no_core_and_bounded() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 * _GIB, 4 * _GIB))
    soft = min(1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, soft))


def _bounded_memory() -> None:
    # RLIMIT_DATA counts private writable memory only, so torch's large reserved ranges are free.
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = int(total * 0.6)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _no_network() -> None:
    _unshare(_CLONE_NEWNET)


def _no_shared_ipc() -> None:
    _unshare(_CLONE_NEWIPC)


def _unshare(flag: int) -> None:
    libc = _libc()
    if libc.unshare(flag) != 0:
        _checked(libc.unshare(flag | _CLONE_NEWUSER))


def _nobody() -> None:
    if os.geteuid() != 0:
        raise PermissionError("already unprivileged")
    if not _readable_by_others(sys.prefix) or not _readable_by_others(sys.base_prefix):
        raise PermissionError("the Python installation is not readable by other users")
    os.setgroups([])
    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
    os.setresuid(_NOBODY, _NOBODY, _NOBODY)


def _readable_by_others(path: str) -> bool:
    while path != "/":
        if os.stat(path).st_mode & 0o005 != 0o005:
            return False
        path = os.path.dirname(path)
    return True


def _no_new_privileges() -> None:
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


LAYERS: tuple[Layer, ...] = (
    Layer("rlimits", "no core dumps, bounded files and descriptors", _no_core_and_bounded),
    Layer("memory", "private memory at most 60 % of the machine's", _bounded_memory),
    Layer("net", "own network namespace with no interface up", _no_network),
    Layer("ipc", "own System V and POSIX message queues", _no_shared_ipc),
    Layer("uid", "runs as nobody", _nobody),
    Layer("no_new_privs", "no setuid program raises its rights", _no_new_privileges),
)
"""In the order they are entered: the uid drop comes after what needs rights."""


def enter() -> tuple[str, ...]:
    """Enter every layer that this machine allows; return the names of those that hold."""
    held = []
    for layer in LAYERS:
        try:
            layer.enter()
        except OSError:
            continue
        held.append(layer.name)
    return tuple(held)


def probe() -> tuple[str, ...]:
    """Find out in a throwaway child which layers hold on this machine."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        os.write(write, ",".join(enter()).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        held = pipe.read()
    os.waitpid(pid, 0)
    return tuple(name for name in held.split(",") if name)
