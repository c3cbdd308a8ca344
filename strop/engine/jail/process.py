"""Forking a worker that is the first process of its own namespace, and still one's own child."""

from __future__ import annotations

import os
import signal
import struct
from collections.abc import Callable
from contextlib import suppress

from strop.engine.jail import namespaces
from strop.engine.jail.kernel import prctl

__all__ = ["die_with_parent", "spawn"]

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_REPORT = struct.Struct("=qB")


def die_with_parent(how: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when the one that forked it dies."""
    prctl(_PR_SET_PDEATHSIG, how)


def spawn(run: Callable[[list[str]], None]) -> int:
    """Fork a process that runs `run(layers that hold already)`; return its pid.

    A process enters a pid namespace only by being born into it. So a keeper is forked that leaves
    ours, forks the worker and goes; the worker then becomes our own child, because we adopt orphans.

    Raises:
        OSError: no process could be made.
    """
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    (report, reported), (gone, let_go) = os.pipe(), os.pipe()
    keeper = os.fork()
    if keeper == 0:
        try:
            _keep(run, report, reported, gone, let_go)
        finally:
            os._exit(1)
    for fd in (reported, gone):
        os.close(fd)
    text = os.read(report, _REPORT.size)
    os.close(report)
    os.waitpid(keeper, 0)
    os.close(let_go)  # only now is the worker our child
    if len(text) < _REPORT.size:
        raise OSError("a worker could not be forked")
    return int(_REPORT.unpack(text)[0])


def _keep(run: Callable[[list[str]], None], report: int, reported: int, gone: int, let_go: int) -> None:
    held = ["pid"]
    try:
        namespaces.leave_pids()
    except OSError:
        held = []
    pid = os.fork()
    if pid:
        os.write(reported, _REPORT.pack(pid, bool(held)))
        os._exit(0)
    for fd in (report, reported, let_go):
        os.close(fd)
    os.read(gone, 1)  # until the keeper is gone and its parent has adopted us
    os.close(gone)
    die_with_parent()
    with suppress(OSError):
        os.setsid()
    run(held)
