"""The door: nothing slips through, nothing is stopped, no count leaks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from strop.engine.vllm.door import Door


def run(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scene, 10))


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Request:
    """A request that stays inside until it is let go."""

    def __init__(self, door: Door) -> None:
        self.inside = False
        self.held_s = -1.0
        self.leave = asyncio.Event()
        self.task = asyncio.create_task(self._live(door))

    async def _live(self, door: Door) -> None:
        async with door.admit() as self.held_s:
            self.inside = True
            await self.leave.wait()
        self.inside = False


def counts(door: Door) -> tuple[object, ...]:
    state = door.state()
    return state["open"], state["in_flight"], state["held"], state["held_most"]


def test_an_open_door_holds_nobody() -> None:
    async def scene() -> None:
        door = Door()
        async with door.admit() as first_s, door.admit() as second_s:
            assert (first_s, second_s) == (0.0, 0.0)
            assert counts(door) == (True, 2, 0, 0)
        assert door.state() == {"open": True, "in_flight": 0, "held": 0, "held_most": 0, "closed_s": 0.0}

    run(scene())


def test_closing_waits_for_those_in_flight_and_holds_the_new_ones() -> None:
    async def scene() -> None:
        door = Door()
        old = [Request(door), Request(door)]
        await settle()
        closing = asyncio.create_task(door.close(5))
        await settle()
        new = Request(door)
        await settle()
        assert [request.inside for request in (*old, new)] == [True, True, False]
        old[0].leave.set()
        await settle()
        assert not closing.done()
        assert counts(door) == (False, 1, 1, 1)
        old[1].leave.set()
        await closing
        await asyncio.sleep(0.02)
        assert not new.inside
        assert door.state()["closed_s"] >= 0.02
        door.open()
        await settle()
        assert new.inside
        assert new.held_s >= 0.02
        assert counts(door) == (True, 1, 0, 1)
        new.leave.set()
        await new.task

    run(scene())


def test_too_slow_a_request_reopens_the_door_and_goes_on() -> None:
    async def scene() -> None:
        door = Door()
        slow = Request(door)
        await settle()
        held: list[Request] = []
        asyncio.get_running_loop().call_later(0.01, lambda: held.append(Request(door)))
        with pytest.raises(TimeoutError):
            await door.close(0.05)
        await settle()
        assert slow.inside
        assert held[0].inside
        assert counts(door) == (True, 2, 0, 1)
        slow.leave.set()
        held[0].leave.set()
        await asyncio.gather(slow.task, held[0].task)
        await door.close(0.05)
        assert counts(door) == (False, 0, 0, 0)

    run(scene())


def test_a_cancelled_closer_leaves_the_door_open() -> None:
    async def scene() -> None:
        door = Door()
        inside = Request(door)
        await settle()
        closing = asyncio.create_task(door.close(5))
        await settle()
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        assert counts(door) == (True, 1, 0, 0)
        inside.leave.set()
        await inside.task

    run(scene())


def test_clients_that_go_away_leave_no_count_behind() -> None:
    async def scene() -> None:
        door = Door()
        inside = Request(door)
        await settle()
        closing = asyncio.create_task(door.close(5))
        await settle()
        waiting = Request(door)
        await settle()
        waiting.task.cancel()
        inside.task.cancel()
        await asyncio.gather(waiting.task, inside.task, return_exceptions=True)
        await closing
        assert counts(door) == (False, 0, 0, 1)

    run(scene())


def test_a_client_that_goes_away_just_as_the_door_opens() -> None:
    async def scene() -> None:
        door = Door()
        await door.close(1)
        waiting = Request(door)
        await settle()
        door.open()
        waiting.task.cancel()
        await asyncio.gather(waiting.task, return_exceptions=True)
        assert counts(door) == (True, 0, 0, 1)

    run(scene())


def test_a_failing_request_leaves_no_count_behind() -> None:
    async def fail(door: Door) -> None:
        async with door.admit():
            raise ValueError

    async def scene() -> None:
        door = Door()
        with pytest.raises(ValueError):  # noqa: PT011
            await fail(door)
        assert counts(door) == (True, 0, 0, 0)

    run(scene())


def test_reopened_and_closed_at_once_it_still_holds() -> None:
    async def scene() -> None:
        door = Door()
        await door.close(1)
        waiting = Request(door)
        await settle()
        door.open()
        await door.close(1)
        await settle()
        assert not waiting.inside
        assert counts(door)[:3] == (False, 0, 1)
        door.open()
        await settle()
        assert waiting.inside
        waiting.leave.set()
        await waiting.task

    run(scene())


def test_a_closed_door_is_not_closed_twice() -> None:
    async def scene() -> None:
        door = Door()
        await door.close(1)
        with pytest.raises(RuntimeError, match="already"):
            await door.close(1)
        assert counts(door)[0] is False

    run(scene())
