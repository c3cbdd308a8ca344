"""The ASGI middleware that strop adds to vLLM's server: door, records, and two routes of its own.

    GET  /strop/state    the door's state, the records' path, the version that is live
    POST /strop/session  {"socket": PATH, "timeout_s": S}: lend the engine to the judge

Both want `Authorization: Bearer $STROP_TOKEN`; without that variable neither exists (404). A
session is answered when the judge hangs up, which may take hours. Door and records stand at the
engine client, not at the routes, so every endpoint is covered, streaming or not.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import aclosing, suppress
from typing import Any

from strop.core import BASELINE_ID, StropError
from strop.engine.vllm.door import Door
from strop.engine.vllm.records import Observation, Recorder, Status

__all__ = ["SERVE", "UNKNOWN", "Middleware"]

SERVE = "strop_serve"
"""The worker extension's method: serves the judge on a socket, returns the live version's id."""
UNKNOWN = "unknown"
"""The live version after a session that failed: the workers did not say what they run."""

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_ROUTES = {"/strop/state": "GET", "/strop/session": "POST"}
_BODY_BYTES = 64 << 10
_DRAIN_S = 600.0
_DRAIN_MOST_S = 86_400.0
_RESET_S = 10.0
_RESET_STEP_S = 0.05


class Middleware:
    """Wraps the engine client at the first request; after that it costs one look a request."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.door = Door()
        self.recorder = Recorder(os.environ.get("STROP_RECORDS", ""))
        self.live = BASELINE_ID
        self._token = os.environ.get("STROP_TOKEN", "")
        self._wrapped = False
        self._in_session = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer strop's routes; hand every other scope to the app as it is."""
        if not self._wrapped and scope["type"] != "lifespan":
            self._wrap(scope["app"].state.engine_client)
        if scope["type"] == "http" and "/strop/" in scope["path"]:
            path = scope["path"].removeprefix(scope.get("root_path") or "")
            if path in _ROUTES:
                status, body = await self._answer(path, scope, receive)
                await _send_json(send, status, body)
                return
        await self.app(scope, receive, send)

    def _wrap(self, client: Any) -> None:
        self._wrapped = True
        if client is None:  # a server that only renders prompts
            return
        client.generate = self._recorded(client.generate)
        if hasattr(client, "encode"):
            client.encode = self._admitted(client.encode)

    def _recorded(self, generate: Callable[..., Any]) -> Callable[..., AsyncIterator[Any]]:
        async def through_the_door(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            seen = Observation(_output_kind(args, kwargs))
            status: Status = "ok"
            try:
                async with self.door.admit() as held_s:
                    seen.admitted(held_s, self.live)
                    # Closed here and not by the garbage collector: what the client gave up must
                    # be aborted in the engine before the door counts it out.
                    async with aclosing(generate(*args, **kwargs)) as outputs:
                        async for output in outputs:
                            seen.see(output)
                            yield output
            except (asyncio.CancelledError, GeneratorExit):
                status = "aborted"
                raise
            except BaseException:
                status = "error"
                raise
            finally:
                self.recorder.write(seen.row(seen.finish or status))

        return through_the_door

    def _admitted(self, encode: Callable[..., Any]) -> Callable[..., AsyncIterator[Any]]:
        async def through_the_door(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            async with self.door.admit(), aclosing(encode(*args, **kwargs)) as outputs:
                async for output in outputs:
                    yield output

        return through_the_door

    async def _answer(self, path: str, scope: Scope, receive: Receive) -> tuple[int, dict[str, Any]]:
        if not self._token:
            return 404, {"error": "not found"}
        if not _bears(scope, self._token):
            return 401, {"error": "the header `Authorization: Bearer TOKEN` is missing or wrong"}
        if scope["method"] != _ROUTES[path]:
            return 405, {"error": f"{path} answers {_ROUTES[path]} only"}
        if path == "/strop/state":
            return 200, self._state()
        try:
            socket, timeout_s = _wanted(await _body(receive))
        except ValueError as error:
            return 400, {"error": str(error)}
        return await self._session(scope["app"].state.engine_client, socket, timeout_s)

    def _state(self) -> dict[str, Any]:
        return {
            **self.door.state(),
            "records": self.recorder.path,
            "recording": self.recorder.recording,
            "session": self._in_session,
            "version": self.live,
        }

    async def _session(self, client: Any, socket: str, timeout_s: float) -> tuple[int, dict[str, Any]]:
        if client is None:
            return 500, {"error": "this server has no engine"}
        if self._in_session:
            return 409, {"error": "a session is running; wait until its judge hangs up"}
        self._in_session = True
        try:
            return 200, await self._lend(client, socket, timeout_s)
        except Exception as error:
            return 500, {"error": " ".join(f"{type(error).__name__}: {error}".split())}
        finally:
            self._in_session = False

    async def _lend(self, client: Any, socket: str, timeout_s: float) -> dict[str, Any]:
        """Serve one judge with nothing else in the engine.

        Raises:
            StropError: requests do not finish, the cache stays in use, or the workers disagree.
            Exception: what vLLM or the worker extension raises.
        """
        try:
            await self.door.close(timeout_s)
        except TimeoutError:
            in_flight = self.door.state()["in_flight"]
            raise StropError(
                f"{in_flight} requests were still running after {timeout_s:g} s; "
                "try again when the server is quieter, or raise timeout_s"
            ) from None
        try:
            await _forget_prefixes(client)
            start_s = time.monotonic()
            try:
                self.live = await self._served(client, socket)
            finally:
                served_s = time.monotonic() - start_s
                # The judge may have used the cache's blocks for tokens of its own.
                await _forget_prefixes(client)
            held = self.door.state()["held_most"]
            return {"served_s": round(served_s, 3), "held": held, "version": self.live}
        finally:
            self.door.open()

    async def _served(self, client: Any, socket: str) -> str:
        self.live, before = UNKNOWN, self.live
        answers = await client.collective_rpc(SERVE, timeout=None, args=(socket,))
        named = {answer for answer in answers if isinstance(answer, str)}
        if len(named) > 1:
            raise StropError(f"the workers run different versions: {', '.join(sorted(named))}; restart vLLM")
        return named.pop() if named else before


async def _forget_prefixes(client: Any) -> None:
    """Reset the prefix cache, which vLLM refuses while a request holds blocks.

    An aborted request leaves the client before the engine has freed its blocks, hence the tries.
    """
    deadline_s = time.monotonic() + _RESET_S
    while not await client.reset_prefix_cache():
        if time.monotonic() > deadline_s:
            raise StropError("the prefix cache is still in use though no request runs; restart vLLM")
        await asyncio.sleep(_RESET_STEP_S)


def _output_kind(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    # generate(prompt, sampling_params, request_id, ...); by name, so that vllm is not imported.
    params = kwargs.get("sampling_params", args[1] if len(args) > 1 else None)
    return str(getattr(getattr(params, "output_kind", None), "name", "CUMULATIVE"))


def _bears(scope: Scope, token: str) -> bool:
    given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
    scheme, _, secret = given.partition(b" ")
    return scheme.lower() == b"bearer" and hmac.compare_digest(secret.strip(), token.encode())


def _wanted(body: bytes) -> tuple[str, float]:
    """Return the socket's path and the seconds to wait for requests in flight.

    Raises:
        ValueError: the body is no such JSON.
    """
    request = None
    with suppress(ValueError, RecursionError):
        request = json.loads(body)
    if not isinstance(request, dict) or not {"socket"} <= request.keys() <= {"socket", "timeout_s"}:
        raise ValueError('the body must be {"socket": PATH, "timeout_s": SECONDS}')
    socket, timeout_s = request["socket"], request.get("timeout_s", _DRAIN_S)
    if not isinstance(socket, str) or not os.path.isabs(socket):
        raise ValueError("socket: an absolute path is expected")
    number = isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool)
    if not number or not 0 < timeout_s <= _DRAIN_MOST_S:
        raise ValueError(f"timeout_s: seconds above 0 and at most {_DRAIN_MOST_S:g} are expected")
    return socket, float(timeout_s)


async def _body(receive: Receive) -> bytes:
    """Read the request's body.

    Raises:
        ValueError: it is over 64 KiB, or the client left before its end.
    """
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ValueError("the client left before the end of the body")
        part: bytes = message.get("body", b"")
        body += part
        if len(body) > _BODY_BYTES:
            raise ValueError(f"the body is over {_BODY_BYTES} bytes")
        if not message.get("more_body", False):
            return body


async def _send_json(send: Send, status: int, body: dict[str, Any]) -> None:
    data = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})
