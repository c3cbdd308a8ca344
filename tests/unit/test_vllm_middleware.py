"""The middleware around a fake of vLLM's engine client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from strop.engine.vllm.middleware import Middleware

DELTA = SimpleNamespace(output_kind=SimpleNamespace(name="DELTA"))


class Client:
    """Makes three tokens a request, and stops before each until `go` is set."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.go.set()
        self.calls: list[Any] = []
        self.aborted = 0
        self.resets = [True] * 9
        self.hang_up = asyncio.Event()
        self.hang_up.set()
        self.answers: list[Any] = [None]

    async def generate(
        self, prompt: Any, sampling_params: Any, request_id: str, **more: Any
    ) -> AsyncIterator[Any]:
        self.calls.append((prompt, request_id, more))
        try:
            for token in range(3):
                await self.go.wait()
                if prompt == "broken":
                    raise ValueError("broken")
                yield self._output([token], token == 2)
        except (asyncio.CancelledError, GeneratorExit):
            self.aborted += 1
            raise

    async def encode(self, prompt: Any) -> AsyncIterator[str]:
        await self.go.wait()
        yield f"encoded {prompt}"

    def _output(self, tokens: list[int], last: bool) -> Any:
        sequence = SimpleNamespace(index=0, token_ids=tokens, finish_reason="stop" if last else None)
        return SimpleNamespace(
            outputs=[sequence], finished=last, prompt_token_ids=[1, 2], num_cached_tokens=0, metrics=None
        )

    async def reset_prefix_cache(self) -> bool:
        self.calls.append("reset")
        return self.resets.pop(0)

    async def collective_rpc(
        self, method: str, timeout: float | None = None, args: tuple[Any, ...] = ()
    ) -> list[Any]:
        self.calls.append((method, timeout, args))
        await self.hang_up.wait()
        if isinstance(self.answers, Exception):
            raise self.answers
        return self.answers


class Server:
    """A middleware over an app that streams what `/v1` is asked for, and its HTTP client."""

    def __init__(self) -> None:
        self.client: Any = Client()
        self.state = SimpleNamespace(engine_client=self.client)
        self.untouched: list[Any] = []
        self.middleware = Middleware(self.app)

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        self.untouched.append(scope)

    async def call(
        self, method: str, path: str, body: Any = b"", token: str | None = "secret", root: str = ""
    ) -> tuple[int, Any]:
        headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
        scope = {
            "type": "http",
            "method": method,
            "path": root + path,
            "root_path": root,
            "headers": headers,
            "app": SimpleNamespace(state=self.state),
        }
        sent: list[Any] = []
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        parts = [
            {"type": "http.request", "body": data[:9], "more_body": True},
            {"type": "http.request", "body": data[9:]},
        ]

        async def receive() -> Any:
            return parts.pop(0)

        async def send(message: Any) -> None:
            sent.append(message)

        await self.middleware(scope, receive, send)
        if not sent:
            return 0, None
        return sent[0]["status"], json.loads(sent[1]["body"])

    async def generate(self, prompt: Any = "p", **more: Any) -> int:
        return sum([1 async for _ in self.client.generate(prompt, DELTA, "id", **more)])

    def session(self, timeout_s: float = 5) -> asyncio.Task[tuple[int, Any]]:
        wanted = {"socket": "/s", "timeout_s": timeout_s}
        return asyncio.create_task(self.call("POST", "/strop/session", wanted))

    def has(self, state: str) -> Any:
        return self.middleware.door.state()[state]


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STROP_TOKEN", "secret")
    monkeypatch.setenv("STROP_RECORDS", str(tmp_path / "r.jsonl"))
    return tmp_path / "r.jsonl"


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def play(scene: Callable[[Server], Coroutine[Any, Any, None]], warm: bool = True) -> None:
    async def whole() -> None:
        server = Server()
        if warm:
            await server.call("GET", "/health")
            server.untouched.clear()
        await scene(server)

    asyncio.run(asyncio.wait_for(whole(), 20))


async def settle() -> None:
    for _ in range(9):
        await asyncio.sleep(0)


def test_other_scopes_go_to_the_app_untouched(records: Path) -> None:
    async def scene(server: Server) -> None:
        plain = server.client.generate
        await server.middleware({"type": "lifespan"}, None, None)  # type: ignore[arg-type]
        assert server.client.generate == plain
        await server.call("GET", "/v1/models", token=None)
        wrapped = server.client.generate
        assert wrapped != plain
        await server.call("GET", "/strop/other", token=None)
        assert server.client.generate is wrapped
        assert [scope.get("path") for scope in server.untouched] == [None, "/v1/models", "/strop/other"]

    play(scene, warm=False)


def test_every_request_is_recorded_once(records: Path) -> None:
    async def scene(server: Server) -> None:
        made = await asyncio.gather(server.generate("a"), server.generate("b", priority=1))
        assert made == [3, 3]
        assert ("b", "id", {"priority": 1}) in server.client.calls

    play(scene)
    found = rows(records)
    assert [(r["isl"], r["osl"], r["status"], r["version"]) for r in found] == [
        (2, 3, "ok", ["baseline"])
    ] * 2
    assert all(len(r["itl_ms"]) == 2 and r["ttft_ms"] >= 0 for r in found)


def test_errors_pass_through_and_are_recorded(records: Path) -> None:
    async def scene(server: Server) -> None:
        with pytest.raises(ValueError, match="broken"):
            await server.generate("broken")
        assert server.has("in_flight") == 0

    play(scene)
    assert [(r["status"], r["osl"]) for r in rows(records)] == [("error", 0)]


def test_a_client_that_goes_away_aborts_in_the_engine(records: Path) -> None:
    async def scene(server: Server) -> None:
        server.client.go.clear()
        cancelled = asyncio.create_task(server.generate())
        await settle()
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        assert (server.client.aborted, server.has("in_flight")) == (1, 0)

        server.client.go.set()
        stream = server.client.generate("p", DELTA, "id")
        await anext(stream)
        await stream.aclose()
        assert (server.client.aborted, server.has("in_flight")) == (2, 0)

    play(scene)
    assert [(r["status"], r["osl"]) for r in rows(records)] == [("aborted", 0), ("aborted", 1)]


def test_a_consumer_that_stops_at_the_last_output_was_served(records: Path) -> None:
    async def scene(server: Server) -> None:
        stream = server.client.generate("p", DELTA, "id")
        for _ in range(3):
            await anext(stream)
        await stream.aclose()

    play(scene)
    assert [(r["status"], r["osl"]) for r in rows(records)] == [("ok", 3)]


def test_without_a_token_the_routes_do_not_exist(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STROP_TOKEN")

    async def scene(server: Server) -> None:
        assert (await server.call("GET", "/strop/state", token=""))[0] == 404
        assert (await server.call("POST", "/strop/session", {"socket": "/s"}))[0] == 404
        assert server.client.calls == []

    play(scene)


@pytest.mark.parametrize("token", [None, "", "secre", "secret2", "sécret"])
def test_a_wrong_token_gets_nowhere(records: Path, token: str | None) -> None:
    async def scene(server: Server) -> None:
        assert (await server.call("GET", "/strop/state", token=token))[0] == 401
        assert (await server.call("POST", "/strop/session", {"socket": "/s"}, token))[0] == 401
        assert server.client.calls == []

    play(scene)


@pytest.mark.parametrize("root", ["", "/behind/proxy"])
def test_the_state(records: Path, root: str) -> None:
    async def scene(server: Server) -> None:
        status, state = await server.call("GET", "/strop/state", root=root)
        assert status == 200
        assert state == {
            "open": True,
            "in_flight": 0,
            "held": 0,
            "held_most": 0,
            "closed_s": 0.0,
            "records": str(records),
            "recording": True,
            "session": False,
            "version": "baseline",
        }
        assert (await server.call("POST", "/strop/state"))[0] == 405

    play(scene)


def test_a_session_from_drain_to_open(records: Path) -> None:
    async def scene(server: Server) -> None:
        server.client.go.clear()
        server.client.hang_up.clear()
        server.client.answers = ["v7", "v7"]
        old = asyncio.create_task(server.generate("old"))
        await settle()
        session = server.session()
        await settle()
        new = asyncio.create_task(server.generate("new"))
        pooled = asyncio.create_task(anext(server.client.encode("x")))
        await settle()
        assert server.client.calls == [("old", "id", {})]  # the old one still runs: no reset, no session
        server.client.go.set()
        assert await old == 3
        await asyncio.sleep(0.02)
        assert server.client.calls[1:] == ["reset", ("strop_serve", None, ("/s",))]
        assert not new.done()
        assert not pooled.done()
        assert (await server.call("GET", "/strop/state"))[1]["session"] is True
        assert (await server.session())[0] == 409
        assert server.has("open") is False
        server.client.hang_up.set()
        status, answer = await session
        assert (status, answer["held"], answer["version"]) == (200, 2, "v7")
        assert 0.01 < answer["served_s"] < 5
        assert (await new, await pooled) == (3, "encoded x")
        assert server.client.calls[3:] == ["reset", ("new", "id", {})]

    play(scene)
    old, new = rows(records)
    assert (old["version"], old["held_ms"]) == (["baseline"], 0.0)
    assert new["version"] == ["v7"]
    assert new["ttft_ms"] >= new["held_ms"] > 10


def test_a_held_client_that_goes_away(records: Path) -> None:
    async def scene(server: Server) -> None:
        server.client.hang_up.clear()
        session = server.session()
        await settle()
        held = asyncio.create_task(server.generate())
        await settle()
        held.cancel()
        await asyncio.gather(held, return_exceptions=True)
        assert server.has("held") == 0
        server.client.hang_up.set()
        assert (await session)[1]["held"] == 1
        assert not any(isinstance(call, tuple) and call[1] == "id" for call in server.client.calls)

    play(scene)
    assert [(r["status"], r["version"]) for r in rows(records)] == [("aborted", [])]


def test_requests_that_do_not_finish_end_the_session(records: Path) -> None:
    async def scene(server: Server) -> None:
        server.client.go.clear()
        old = asyncio.create_task(server.generate())
        await settle()
        status, answer = await server.session(timeout_s=0.02)
        assert status == 500
        assert "1 requests were still running after 0.02 s" in answer["error"]
        assert server.has("open") is True
        server.client.go.set()
        assert await old == 3
        assert "reset" not in server.client.calls
        assert (await server.session())[0] == 200

    play(scene)


def test_a_session_that_fails_opens_the_door_and_names_no_version(records: Path) -> None:
    async def scene(server: Server) -> None:
        server.client.answers = RuntimeError("worker\ndied")
        assert await server.session() == (500, {"error": "RuntimeError: worker died"})
        assert server.client.calls[-1] == "reset"
        assert server.has("open") is True
        assert (await server.call("GET", "/strop/state"))[1]["version"] == "unknown"
        server.client.answers = ["a", "b"]
        status, answer = await server.session()
        assert (status, "different versions: a, b" in answer["error"]) == (500, True)
        assert await server.generate() == 3

    play(scene)
    assert rows(records)[0]["version"] == ["unknown"]


def test_a_cache_in_use_is_asked_again(records: Path) -> None:
    async def scene(server: Server) -> None:
        server.client.resets = [False, False, True, True]
        assert (await server.session())[0] == 200
        assert server.client.calls == ["reset"] * 3 + [("strop_serve", None, ("/s",)), "reset"]

    play(scene)


def test_a_cache_that_stays_in_use_lets_no_judge_in(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strop.engine.vllm.middleware._RESET_S", 0.0)

    async def scene(server: Server) -> None:
        server.client.resets = [False] * 9
        status, answer = await server.session()
        assert (status, "still in use" in answer["error"]) == (500, True)
        assert not any(isinstance(call, tuple) for call in server.client.calls)
        assert server.has("open") is True

    play(scene)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "the body must be"),
        (b"[" * 60_000, "the body must be"),
        (b"\xff", "the body must be"),
        ([], "the body must be"),
        ({}, "the body must be"),
        ({"socket": "/s", "other": 1}, "the body must be"),
        ({"socket": 3}, "socket: an absolute path"),
        ({"socket": "s"}, "socket: an absolute path"),
        ({"socket": "/s", "timeout_s": 0}, "timeout_s: seconds"),
        ({"socket": "/s", "timeout_s": True}, "timeout_s: seconds"),
        ({"socket": "/s", "timeout_s": "9"}, "timeout_s: seconds"),
        (b'{"socket": "/s", "timeout_s": NaN}', "timeout_s: seconds"),
        (b" " * 70_000, "over 65536 bytes"),
    ],
)
def test_a_wrong_body_starts_no_session(records: Path, body: Any, says: str) -> None:
    async def scene(server: Server) -> None:
        status, answer = await server.call("POST", "/strop/session", body)
        assert (status, says in answer["error"]) == (400, True)
        assert server.client.calls == []
        assert server.has("open") is True

    play(scene)


def test_a_server_without_an_engine(records: Path) -> None:
    async def scene(server: Server) -> None:
        server.state.engine_client = None
        await server.call("GET", "/health")
        assert len(server.untouched) == 1
        assert (await server.session())[0] == 500

    play(scene, warm=False)
