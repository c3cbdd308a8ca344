"""A root of one's own: system and Python read-only, one folder to write to, nothing else there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from strop.engine.jail.kernel import call, mount, umount, unshare

__all__ = ["DEVICES", "change_root", "readable"]

_NEWNS = 0x00020000
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT = 1, 2, 4, 8, 32
_BIND, _REC, _PRIVATE = 4096, 16384, 1 << 18
_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/sys")
_DEVICES = ("null", "zero", "full", "urandom", "random")
DEVICES = tuple(f"/dev/{name}" for name in _DEVICES)
"""What every worker may open; NVIDIA's come to it where there are any."""


@cache
def readable() -> tuple[str, ...]:
    """Return what a worker may read: the system, Python, and the packages that are imported.

    Not the working directory and not the home: a journal may lie there, or a key.
    """
    wanted = {*_SYSTEM, os.path.realpath(sys.prefix), os.path.realpath(sys.base_prefix), sys.prefix}
    for name, module in list(sys.modules.items()):
        top = sys.modules.get(name.partition(".")[0], module)
        paths = list(getattr(top, "__path__", [])) or [getattr(top, "__file__", None)]
        wanted |= {str(path) for path in paths if path and os.path.isabs(str(path))}
    there = sorted(path for path in wanted if os.path.lexists(path))
    return tuple(path for path in there if not _below(path, there))


def _below(path: str, others: Iterable[str]) -> bool:
    return any(path != other and path.startswith(f"{other}/") for other in others)


def change_root(folder: Path) -> None:
    """Make the new root beside `folder`, which stays writable under its name, and move into it.

    Raises:
        OSError: the kernel does not allow it; the old root is then still there.
    """
    unshare(_NEWNS)
    mount("", "/", "", _REC | _PRIVATE)
    root = str(folder.parent / "root")
    os.mkdir(root)
    mount("tmpfs", root, "tmpfs", _NOSUID | _NODEV, "mode=755,size=1m")
    _folder(f"{root}/tmp")
    mount("tmpfs", f"{root}/tmp", "tmpfs", _NOSUID | _NODEV, "mode=1777,size=10%")
    for path in readable():  # some may lie below /tmp
        _bind(path, root, read_only=True)
    for path in (*DEVICES, *map(str, Path("/dev").glob("nvidia*"))):
        _bind(path, root, read_only=False)
    _bind(str(folder), root, read_only=False)
    _folder(f"{root}/dev/shm")
    mount("tmpfs", f"{root}/dev/shm", "tmpfs", _NOSUID | _NODEV, "mode=1777,size=25%")
    _folder(f"{root}/proc")
    mount("proc", f"{root}/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    _folder(f"{root}/old")
    os.chdir(root)
    call(_PIVOT_ROOT[os.uname().machine], b".", b"old")
    os.chdir("/")
    umount("/old", _DETACH)
    os.rmdir("/old")
    mount("", "/", "", _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV)
    os.chdir(folder)


def _bind(path: str, root: str, *, read_only: bool) -> None:
    target = root + path
    if os.path.islink(path):  # /bin, where it is a link to /usr/bin
        _folder(os.path.dirname(target))
        os.symlink(os.readlink(path), target)
        return
    if os.path.isdir(path):
        _folder(target)
    else:
        _folder(os.path.dirname(target))
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    mount(path, target, "", _BIND | _REC)
    if read_only:
        mount("", target, "", _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV)


def _folder(path: str) -> None:
    os.makedirs(path, mode=0o755, exist_ok=True)
