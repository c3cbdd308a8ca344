"""Limits and rights: memory, files, processes, capabilities, the user."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
from pathlib import Path

from strop.engine.jail.kernel import call, prctl

__all__ = ["become_nobody", "bound_files", "bound_memory", "drop_capabilities", "no_new_privileges"]

_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 24, 38, 47
_AMBIENT_CLEAR = 4
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAP_SETGID, _CAP_SETUID, _CAP_SETPCAP = 6, 7, 8
_VERSION_3 = 0x20080522
_NOBODY = 65534
_GIB = 1 << 30


def bound_files() -> None:
    """No core dumps; bounded files, descriptors and processes."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 * _GIB, 4 * _GIB))
    for kind, most in ((resource.RLIMIT_NOFILE, 1024), (resource.RLIMIT_NPROC, 4096)):
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def bound_memory() -> None:
    """Private writable memory at most 60 % of the machine's."""
    # RLIMIT_DATA counts private writable memory only, so torch's large reserved ranges are free.
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = int(total * 0.6)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Sets(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable")]


def drop_capabilities() -> None:
    """Give up every capability but those that the change of user needs, and for good."""
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text(encoding="ascii"))
    for capability in range(last + 1):
        prctl(_PR_CAPBSET_DROP, capability)
    prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR)
    kept = 1 << _CAP_SETGID | 1 << _CAP_SETUID if os.geteuid() == 0 else 0
    _set_capabilities(kept)


def become_nobody() -> None:
    """Run as nobody, without a group; who is no root already stays who they are.

    Raises:
        OSError: the old rights are still there.
    """
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    _set_capabilities(0)
    if os.geteuid() == 0:
        raise OSError(errno.EPERM, "still root")


def _set_capabilities(low: int) -> None:
    header, sets = _Header(_VERSION_3, 0), (_Sets * 2)(_Sets(low, low, 0), _Sets(0, 0, 0))
    call(_CAPSET[os.uname().machine], ctypes.byref(header), ctypes.byref(sets))


def no_new_privileges() -> None:
    """No setuid program raises rights any more."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
