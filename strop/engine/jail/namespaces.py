"""Namespaces: no network, no other processes, no shared memory segments in sight."""

from __future__ import annotations

import os
from pathlib import Path

from strop.engine.jail.kernel import unshare

__all__ = ["leave_ipc", "leave_network", "leave_pids", "leave_uts"]

_NEWUTS, _NEWIPC, _NEWUSER = 0x04000000, 0x08000000, 0x10000000
_NEWPID, _NEWNET = 0x20000000, 0x40000000


def leave_pids() -> None:
    """Have the next child be the first process of a namespace of its own.

    Without root's rights a user namespace is made as well, in which the others can be left.
    """
    try:
        unshare(_NEWPID)
    except PermissionError:
        uid, gid = os.geteuid(), os.getegid()
        unshare(_NEWUSER | _NEWPID)
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1", encoding="ascii")


def leave_network() -> None:
    """Have no interface that is up, not even loopback."""
    unshare(_NEWNET)


def leave_ipc() -> None:
    """Have System V and POSIX message queues of one's own."""
    unshare(_NEWIPC)


def leave_uts() -> None:
    """Have a host name of one's own."""
    unshare(_NEWUTS)
