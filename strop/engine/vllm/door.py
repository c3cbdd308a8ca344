"""The door before the engine: open, every request passes; closed, new ones wait and old ones finish."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["Door"]


class Door:
    """Holds requests back while the engine is busy with something else.

    All methods belong to one event loop. A request that was let in is never stopped: closing
    waits for it, and whoever comes meanwhile waits before the door.
    """

    def __init__(self) -> None:
        self._opened = asyncio.Event()
        self._opened.set()
        self._idle = asyncio.Event()
        self._in_flight = 0
        self._held = 0
        self._held_most = 0
        self._closed_at_s = 0.0

    @asynccontextmanager
    async def admit(self) -> AsyncIterator[float]:
        """Let one request in, waiting while the door is closed; yield the seconds it waited."""
        held_s = 0.0 if self._opened.is_set() else await self._wait()
        # Nothing is awaited between the look at the door and the count, so none slips through.
        self._in_flight += 1
        try:
            yield held_s
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()

    async def close(self, timeout_s: float) -> None:
        """Keep new requests out and return once none is in flight.

        Raises:
            TimeoutError: some were still in flight after `timeout_s` seconds; the door is open again.
            RuntimeError: the door is closed already, and stays so.
        """
        if not self._opened.is_set():
            raise RuntimeError("the door is closed already")
        self._opened.clear()
        self._closed_at_s = time.monotonic()
        self._held_most = 0
        try:
            async with asyncio.timeout(timeout_s):
                await self._drained()
        except BaseException:
            # Also when the closer is cancelled: nobody would be left to open the door.
            self.open()
            raise

    def open(self) -> None:
        """Let everybody in who waits, and everybody after them."""
        self._opened.set()

    def state(self) -> dict[str, bool | int | float]:
        """Return `open`, `in_flight`, `held` now, `held_most` at once, and `closed_s` so far.

        `held_most` counts from the last closing; `closed_s` is 0 while the door is open.
        """
        opened = self._opened.is_set()
        return {
            "open": opened,
            "in_flight": self._in_flight,
            "held": self._held,
            "held_most": self._held_most,
            "closed_s": 0.0 if opened else round(time.monotonic() - self._closed_at_s, 3),
        }

    async def _wait(self) -> float:
        start_s = time.monotonic()
        self._held += 1
        self._held_most = max(self._held_most, self._held)
        try:
            # Once woken, the door may have been closed again before this request's turn came.
            while not self._opened.is_set():
                await self._opened.wait()
        finally:
            self._held -= 1
        return time.monotonic() - start_s

    async def _drained(self) -> None:
        while self._in_flight:
            self._idle.clear()
            await self._idle.wait()
