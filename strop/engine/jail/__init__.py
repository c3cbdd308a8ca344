"""What a worker gives up before it runs a candidate's code, layer by layer.

Each layer is tried where it is used, in the forked worker itself, and the ones that hold are named
in every verdict. What they do not contain is said in docs/decisions/0006-threat-model.md.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from strop.engine.jail import landlock, limits, mounts, namespaces, syscalls
from strop.engine.jail.process import die_with_parent, spawn

__all__ = ["LAYERS", "Layer", "die_with_parent", "enter", "missing", "prepare", "probe", "seal", "spawn"]


@dataclass(frozen=True, slots=True)
class Layer:
    """One thing given up."""

    name: str
    meaning: str
    mend: str
    enter: Callable[[Path, bool], None] | None
    """(folder, whether programs may be started); raises OSError where the layer cannot be entered.
    None for the one that a process cannot enter itself: `process.spawn` does it."""
    last: bool = False
    """Entered after the builder was forked, which has to start compilers."""


_ROOT = "run as root, or allow user namespaces (in a container: --cap-add SYS_ADMIN)"
_KERNEL = "needs Linux 5.13 with landlock among the security modules (lsm=landlock,...)"
_LIBRARY = "pip install pyseccomp, and the system's libseccomp (apt install libseccomp2)"


def _restrict(folder: Path, may_start_programs: bool) -> None:
    # The CUDA driver names its threads, which is a write to /proc: a fresh one that shows nobody else.
    landlock.restrict(mounts.readable(), (str(folder), "/dev", "/tmp", "/proc"))


LAYERS: tuple[Layer, ...] = (
    Layer("pid", "sees no other process, and nothing it starts outlives it", _ROOT, None),
    Layer(
        "rlimits", "no core dumps; bounded files, descriptors, processes", "", lambda *_: limits.bound_files()
    ),
    Layer("memory", "private memory at most 60 % of the machine's", "", lambda *_: limits.bound_memory()),
    Layer("net", "own network namespace with no interface up", _ROOT, lambda *_: namespaces.leave_network()),
    Layer("ipc", "own System V and POSIX message queues", _ROOT, lambda *_: namespaces.leave_ipc()),
    Layer("uts", "own host name", _ROOT, lambda *_: namespaces.leave_uts()),
    Layer(
        "mount",
        "own root: system and Python read-only, one folder to write to",
        _ROOT,
        lambda folder, _: mounts.change_root(folder),
    ),
    Layer("caps", "no capability, now or later", _ROOT, lambda *_: limits.drop_capabilities()),
    Layer("uid", "runs as nobody", _ROOT, lambda *_: limits.become_nobody()),
    Layer("no_new_privs", "no setuid program raises its rights", "", lambda *_: limits.no_new_privileges()),
    Layer(
        "landlock", "opens only what it needs, by path; no TCP, no signals out", _KERNEL, _restrict, last=True
    ),
    Layer(
        "seccomp",
        "starts nothing, traces nothing, no socket but a local one",
        _LIBRARY,
        lambda _, may: syscalls.deny(may),
        last=True,
    ),
)
"""In the order in which they are entered: each needs rights that the later ones give up."""


def prepare() -> None:
    """Do once in the owner what every worker would do again: load libraries, build filters."""
    mounts.readable()
    for may_start_programs in (True, False):
        try:
            syscalls.prepare(may_start_programs)
        except OSError:
            return


def enter(folder: Path) -> list[str]:
    """Enter every layer that a builder shares with its worker; return those that hold."""
    return _entered(folder, last=False)


def seal(folder: Path, *, may_start_programs: bool = False) -> list[str]:
    """Enter the last layers; return those that hold. After that a worker can start nothing."""
    return _entered(folder, last=True, may_start_programs=may_start_programs)


def _entered(folder: Path, *, last: bool, may_start_programs: bool = False) -> list[str]:
    held = []
    for layer in LAYERS:
        if layer.enter is None or layer.last is not last:
            continue
        try:
            layer.enter(folder, may_start_programs)
        except OSError:
            continue
        held.append(layer.name)
    return held


def missing(held: Collection[str]) -> tuple[str, ...]:
    """Return the layers that do not hold."""
    return tuple(layer.name for layer in LAYERS if layer.name not in held)


def probe() -> tuple[str, ...]:
    """Find out in a throwaway process which layers hold on this machine."""
    read, write = os.pipe()
    with tempfile.TemporaryDirectory(prefix="strop-probe-") as made:
        folder = Path(made) / "candidates"
        folder.mkdir()

        def try_all(held: list[str]) -> None:
            held = [*held, *enter(folder), *seal(folder)]
            os.write(write, ",".join(held).encode())
            os._exit(0)

        pid = spawn(try_all)
        os.close(write)
        with os.fdopen(read) as pipe:
            text = pipe.read()
        os.waitpid(pid, 0)
    return tuple(name for name in text.split(",") if name)
