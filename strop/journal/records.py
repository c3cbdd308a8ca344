"""What the journal holds: events, and the aliases that replaying them gives."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from strop.core import StropError

__all__ = ["ALIASES", "Aliases", "Duplicate", "Event", "Moved", "StaleEpoch", "encode", "replay"]

T = TypeVar("T")

ALIASES = ("live", "canary", "previous")
"""The names that move."""


class Duplicate(StropError):
    """An event with this key was recorded before; the first one stands."""


class StaleEpoch(StropError):
    """Somebody else moved the aliases in the meantime."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of history; never changed, never deleted."""

    seq: int
    """Rises with every event and is the order of history; `at` is not, because clocks jump."""
    at: str
    """UTC, ISO 8601 with milliseconds."""
    run: str
    kind: str
    key: str | None
    body: str
    """JSON."""

    def decode(self, kind: type[T]) -> T:
        """Return the body as the record it was.

        Raises:
            StropError: the body is not such a record.
        """
        try:
            return msgspec.json.decode(self.body, type=kind)
        except msgspec.DecodeError as error:
            name = getattr(kind, "__name__", str(kind))
            raise StropError(
                f"event {self.seq} ({self.kind}) is no {name}: {error}; "
                "was it written by another version of strop?"
            ) from error


@dataclass(frozen=True, slots=True)
class Aliases:
    """Where a deployment's names point after `epoch` moves; the baseline has no name."""

    deployment: str
    epoch: int = 0
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Moved:
    """Body of the event `alias_moved`; reads as the `Aliases` after it, too."""

    deployment: str
    epoch: int
    names: Mapping[str, str]
    """Where all names point now."""
    changes: Mapping[str, str | None]
    """The names that were moved, None for those let go."""
    why: str = ""

    @classmethod
    def on(cls, before: Aliases, changes: Mapping[str, str | None], why: str = "") -> Moved:
        """Return the move that makes these changes to aliases."""
        merged = {**before.names, **changes}
        kept = {name: version for name, version in merged.items() if version is not None}
        return cls(before.deployment, before.epoch + 1, kept, dict(changes), why)

    @property
    def aliases(self) -> Aliases:
        """The aliases after this move."""
        return Aliases(self.deployment, self.epoch, self.names)


def replay(moves: Iterable[Event]) -> dict[str, Aliases]:
    """Return the aliases of every deployment after these `alias_moved` events, in order.

    Raises:
        StropError: a move does not follow from the one before it.
    """
    state: dict[str, Aliases] = {}
    for event in moves:
        moved, now = event.decode(Moved), state.get(event.run, Aliases(event.run))
        if moved != Moved.on(now, moved.changes, moved.why):
            raise StropError(
                f"history of {event.run!r} is damaged: event {event.seq} (epoch {moved.epoch}) "
                f"does not follow from epoch {now.epoch}; restore the database from a backup"
            )
        state[event.run] = moved.aliases
    return state


def encode(kind: str, body: Any) -> str:
    """Return a body as JSON that reads back as what it was.

    Raises:
        StropError: it would not: a number is not finite (JSON has none of those), a text is not
            UTF-8, or a field does not hold what its annotation says.
    """
    try:
        data = msgspec.json.encode(body)
        # msgspec writes infinity as null; the standard library can be told to refuse.
        json.dumps(msgspec.to_builtins(body, str_keys=True), allow_nan=False)
        if dataclasses.is_dataclass(body):
            msgspec.json.decode(data, type=type(body))
        elif not isinstance(body, Mapping):
            raise TypeError("a dataclass or a mapping is expected")
    except (TypeError, ValueError, OverflowError, NameError) as error:
        what = f"{type(body).__name__} cannot be recorded as {kind!r}"
        raise StropError(f"{what}: it would not read back: {error}") from error
    return data.decode()
