"""The user's vLLM as a child process: started with strop's additions, lent by sessions, ended."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from strop.core import EngineGone, StropError
from strop.engine import wire
from strop.engine.jail import die_with_parent
from strop.engine.vllm.command import Served

__all__ = ["Session", "VllmServer"]

_EXTENSION = "strop.engine.vllm.extension.WorkerExtension"
_MIDDLEWARE = "strop.engine.vllm.middleware.Middleware"
_ASK_S = 5.0
_DRAIN_S = 600.0
_END_S = 20.0
_POLL_S = 0.2
_WORDS = 2000


class VllmServer:
    """One running `vllm serve`. It ends with us, however we end."""

    def __init__(
        self, served: Served, records: str, timeout_s: float, progress: Callable[[str], None]
    ) -> None:
        """Start it and wait until it answers.

        Raises:
            StropError: it ended before, its port is taken, or it took longer than `timeout_s`.
        """
        self.served = served
        self.token = secrets.token_urlsafe(32)
        self.folder = tempfile.TemporaryDirectory(prefix="strop-vllm-")
        self.log = Path(self.folder.name, "server.log")
        if not served.uds and _taken(served):
            raise StropError(f"{served.url} is in use already: stop that server, or give another --port")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                served.launch(_EXTENSION, _MIDDLEWARE),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **served.environment(self.token, records)},
                start_new_session=True,
                preexec_fn=lambda: die_with_parent(signal.SIGTERM),
            )
        started = time.monotonic()
        try:
            self._wait(timeout_s, progress)
        except BaseException:
            self.close()
            raise
        self.start_s = time.monotonic() - started

    def _wait(self, timeout_s: float, progress: Callable[[str], None]) -> None:
        started = said = time.monotonic()
        while not self._answers():
            now = time.monotonic()
            if self.process.poll() is not None:
                raise StropError(f"vLLM ended with status {self.process.returncode}: {self.last_words()}")
            if now - started > timeout_s:
                raise StropError(
                    f"vLLM did not answer within {timeout_s:.0f} s; raise engine.load_timeout_s. "
                    f"It last said: {self.last_words()}"
                )
            if now - said > 5:
                said = now
                progress(f"vLLM starts: {now - started:.0f} s")
            time.sleep(_POLL_S)

    def _answers(self) -> bool:
        try:
            status, _ = self.ask("GET", "/strop/state")
        except (OSError, http.client.HTTPException):
            return False
        if status == 404:
            raise StropError(
                "the server answers but does not know strop: is `strop` installed in vLLM's environment?"
            )
        return status == 200

    def ask(
        self, method: str, path: str, body: Any = None, timeout_s: float = _ASK_S
    ) -> tuple[int, dict[str, Any]]:
        """Ask one of strop's own routes; return status and JSON.

        Raises:
            OSError, http.client.HTTPException: nobody answers.
        """
        connection = _connection(self.served, timeout_s)
        try:
            prefix = self.served.root_path.rstrip("/")
            headers = {"Authorization": f"Bearer {self.token}"}
            connection.request(method, prefix + path, json.dumps(body) if body else None, headers)
            answer = connection.getresponse()
            data = answer.read()
            try:
                return answer.status, json.loads(data)
            except ValueError:
                return answer.status, {"error": data[:200].decode(errors="replace")}
        finally:
            connection.close()

    def lend(self, drain_s: float = _DRAIN_S) -> Session:
        """Wait until no request runs, and take the engine.

        Raises:
            StropError: requests do not end in time, or another session runs.
            EngineGone: the server is gone.
        """
        return Session(self, drain_s)

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    def last_words(self) -> str:
        """Return the last error the server logged, or its last line."""
        with contextlib.suppress(OSError):
            lines = self.log.read_bytes()[-200_000:].decode(errors="replace").splitlines()
            errors = [line for line in lines if "Error" in line and "Traceback" not in line]
            last = (errors or [line for line in lines if line.strip()] or [""])[-1]
            return " ".join(last.split())[-_WORDS:]
        return ""

    def kill(self) -> None:
        """End every process of it at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        """Ask it to end, and see to it."""
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_END_S)
        self.kill()
        self.folder.cleanup()


class Session:
    """The engine, lent: a channel to its first worker, and the request that keeps the door closed."""

    def __init__(self, server: VllmServer, drain_s: float) -> None:
        self.server = server
        self.answer: tuple[int, dict[str, Any]] | None = None
        path = str(Path(server.folder.name, f"{secrets.token_hex(4)}.sock"))
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(path)
            listener.listen(1)
            listener.settimeout(_POLL_S)
            body = {"socket": path, "timeout_s": drain_s}
            self._thread = threading.Thread(target=self._hold, args=(body,), daemon=True)
            self._thread.start()
            self.channel = wire.Channel(self._accepted(listener))

    def _hold(self, body: dict[str, Any]) -> None:
        try:
            self.answer = self.server.ask("POST", "/strop/session", body, timeout_s=86_400)
        except (OSError, http.client.HTTPException) as error:
            self.answer = 0, {"error": str(error)}

    def _accepted(self, listener: socket.socket) -> socket.socket:
        while True:
            with contextlib.suppress(TimeoutError):
                return listener.accept()[0]
            if self.answer is not None:
                status, body = self.answer
                if status == 0 or not self.server.alive:
                    raise EngineGone(f"vLLM is gone: {self.server.last_words()}")
                raise StropError(f"vLLM cannot be lent: {body.get('error', status)}")

    def close(self, timeout_s: float = _END_S) -> bool:
        """Hang up; return whether the server took its engine back in time."""
        self.channel.close()
        self._thread.join(timeout_s)
        return self.answer is not None and self.answer[0] == 200


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def _connection(served: Served, timeout_s: float) -> http.client.HTTPConnection:
    if served.uds:
        return _UnixConnection(served.uds, timeout_s)
    place = urlsplit(served.url)
    if served.tls:
        # Our own child on this machine; its certificate names the public host.
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return http.client.HTTPSConnection(
            place.hostname or "", place.port, timeout=timeout_s, context=context
        )
    return http.client.HTTPConnection(place.hostname or "", place.port, timeout=timeout_s)


def _taken(served: Served) -> bool:
    with contextlib.suppress(OSError):
        _connection(served, _ASK_S).connect()
        return True
    return False
