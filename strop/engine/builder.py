"""Compilers run beside the worker, never in it: a second jailed process starts them on request.

The worker itself can start nothing. What it asks for through `subprocess` is sent to its builder,
which has the same walls around it but may start programs, and which kills what a program leaves
running. So g++, ninja, nvcc, torch.compile and Triton work unchanged in a candidate.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from socket import socketpair
from tempfile import TemporaryFile
from typing import Any, NoReturn

import msgspec

from strop.engine import jail

__all__ = ["attach", "close_all_but"]

_TIMEOUT_S = 600.0
"""Of one program; the worker's own deadline is usually earlier."""
_MOST_OUTPUT = 64 << 20


class Run(msgspec.Struct, frozen=True):
    """Start a program and wait for it."""

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    stdin: bytes
    timeout_s: float


class Ran(msgspec.Struct, frozen=True):
    """How it ended."""

    returncode: int = 0
    stdout: bytes = b""
    stderr: bytes = b""
    errno: int = 0
    """Why it could not be started."""
    late: bool = False


_run_decoder = msgspec.msgpack.Decoder(Run)
_ran_decoder = msgspec.msgpack.Decoder(Ran)
_encode = msgspec.msgpack.encode


def attach(folder: Path, held: Sequence[str]) -> int:
    """Fork a builder for this process and have `subprocess` use it; return its descriptor here.

    Args:
        folder: the only one that either may write to.
        held: isolation layers that hold already.
    """
    ours, theirs = socketpair()
    if os.fork() == 0:
        try:
            ours.close()
            _serve(Connection(theirs.detach()), folder, alone="pid" in held)
        finally:
            os._exit(1)
    theirs.close()
    connection = Connection(ours.detach())
    subprocess.Popen = type("Popen", (_Program,), {"connection": connection})  # type: ignore[assignment, misc]
    # Programs of the builder that lose their parent become ours: let the kernel bury them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    return connection.fileno()


def _serve(connection: Connection, folder: Path, *, alone: bool) -> NoReturn:
    jail.die_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    close_all_but({0, 1, 2, connection.fileno()})
    jail.seal(folder, may_start_programs=True)
    while True:
        try:
            request = _run_decoder.decode(connection.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)
        reply = _run(request)
        if alone:
            with suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)  # all of the namespace but its first process and us
        connection.send_bytes(_encode(reply))


def _run(request: Run) -> Ran:
    # Files, not pipes: whoever is left running would hold a pipe open for ever.
    with TemporaryFile() as given, TemporaryFile() as out, TemporaryFile() as err:
        given.write(request.stdin)
        given.seek(0)
        try:
            process = subprocess.Popen(
                request.argv,
                cwd=request.cwd,
                env=request.env,
                stdin=given,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        except OSError as error:
            return Ran(errno=error.errno or 1)
        try:
            code, late = process.wait(request.timeout_s), False
        except subprocess.TimeoutExpired:
            code, late = -signal.SIGKILL, True
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read(_MOST_OUTPUT))
        return Ran(code, texts[0], texts[1], late=late)


def close_all_but(kept: set[int]) -> None:
    """Close every descriptor but these."""
    for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
        if fd not in kept:
            with suppress(OSError):
                os.close(fd)


class _Program:
    """What `subprocess.Popen` is in a worker: the program runs when its end is first asked for."""

    connection: Connection
    pid = 0

    def __init__(
        self,
        args: str | Sequence[Any],
        bufsize: int = -1,
        executable: str | None = None,
        stdin: Any = None,
        stdout: Any = None,
        stderr: Any = None,
        preexec_fn: Any = None,
        close_fds: bool = True,
        shell: bool = False,
        cwd: Any = None,
        env: Mapping[str, str] | None = None,
        universal_newlines: bool | None = None,
        *_: Any,
        text: bool | None = None,
        encoding: str | None = None,
        errors: str | None = None,
        **rest: Any,
    ) -> None:
        if preexec_fn is not None or rest.get("pass_fds"):
            raise ValueError("in a jailed worker a program gets no descriptors and runs no function first")
        if hasattr(stdin, "read"):
            raise ValueError("in a jailed worker a program's input is given as bytes, not as a file")
        line = [args] if isinstance(args, str | bytes | os.PathLike) else list(args)
        self.args = args
        self.argv = ["/bin/sh", "-c", *map(os.fsdecode, line)] if shell else list(map(os.fsdecode, line))
        if executable is not None and not shell:
            self.argv[0] = os.fsdecode(executable)
        self.cwd, self.env = os.fsdecode(cwd or os.getcwd()), dict(os.environ if env is None else env)
        self.wanted = (stdout, stderr)
        self.text = bool(text or universal_newlines or encoding or errors)
        self.encoding, self.errors = encoding or "utf-8", errors or "strict"
        self.stdin = io.BytesIO() if stdin == subprocess.PIPE else None
        self.returncode: int | None = None
        self._ended: Ran | None = None

    def _end(self, given: Any = None, timeout: float | None = None) -> Ran:
        if self._ended is None:
            given = given if given is not None else self.stdin.getvalue() if self.stdin else b""
            given = given.encode(self.encoding) if isinstance(given, str) else given
            most = min(timeout or _TIMEOUT_S, _TIMEOUT_S)
            request = Run(tuple(self.argv), self.cwd, self.env, bytes(given), most)
            self.connection.send_bytes(_encode(request))
            ended = _ran_decoder.decode(self.connection.recv_bytes())
            if ended.errno:
                raise OSError(ended.errno, os.strerror(ended.errno), self.argv[0])
            self._ended, self.returncode = ended, ended.returncode
            for wanted, found in zip(self.wanted, self._outputs(ended), strict=True):
                self._pass_on(wanted, found)
            if ended.late:
                raise subprocess.TimeoutExpired(self.args, most, ended.stdout, ended.stderr)
        return self._ended

    def _outputs(self, ended: Ran) -> tuple[bytes, bytes]:
        if self.wanted[1] == subprocess.STDOUT:
            return ended.stdout + ended.stderr, b""
        return ended.stdout, ended.stderr

    def _pass_on(self, wanted: Any, found: bytes) -> None:
        """Write a stream where nobody will ask for it: to a file, or to this worker's own log."""
        if wanted is None:
            sys.stderr.buffer.write(found)
        elif hasattr(wanted, "fileno"):
            os.write(wanted.fileno(), found)

    def _stream(self, index: int) -> Any:
        if self.wanted[index] != subprocess.PIPE:
            return None
        found = self._outputs(self._end())[index]
        return io.StringIO(found.decode(self.encoding, self.errors)) if self.text else io.BytesIO(found)

    @property
    def stdout(self) -> Any:
        """The program's output, once it has ended."""
        return self._stream(0)

    @property
    def stderr(self) -> Any:
        """Its messages."""
        return self._stream(1)

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
        """Run the program; see `subprocess.Popen.communicate`."""
        self._end(input, timeout)
        streams = (self._stream(0), self._stream(1))
        out, err = (stream.read() if stream is not None else None for stream in streams)
        return out, err

    def wait(self, timeout: float | None = None) -> int:
        """Run the program and return its status."""
        return self._end(None, timeout).returncode

    def poll(self) -> int | None:
        """Run the program and return its status: there is no meanwhile."""
        return self.wait()

    def kill(self) -> None:
        """Nothing to do: it has ended, or never began."""

    terminate = kill

    def __enter__(self) -> _Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()

    @classmethod
    def __class_getitem__(cls, _: Any) -> type[_Program]:
        """Annotations say `Popen[bytes]`."""
        return cls
