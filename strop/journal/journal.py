"""The journal: what the rest of strop appends to and replays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from strop.blobs import Blobs, explained
from strop.core import Candidate, StropError
from strop.journal import lock, records
from strop.journal.records import ALIASES, Aliases, Duplicate, Event, Moved, StaleEpoch

if TYPE_CHECKING:
    from strop.journal.database import Database

__all__ = ["Journal"]

_TIMEOUT_S = 10.0
"""How long a write waits for another process to finish its own."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """Body of the event `candidate_stored`; `blob` holds the files as sorted JSON."""

    blob: str
    author: str
    parent: str


class Journal:
    """Open with `Journal.open`; safe to be killed at any moment, and shared by processes."""

    def __init__(self, root: Path, database: Database) -> None:
        self.root = root
        self.blobs = Blobs(root / "blobs")
        self._database = database

    @classmethod
    def open(cls, root: Path, url: str | None = None, *, timeout_s: float = _TIMEOUT_S) -> Journal:
        """Open the journal in a folder, making it if there is none.

        Args:
            root: holds blobs, locks, and the database unless `url` says otherwise.
            url: SQLAlchemy's: `postgresql+psycopg://...`, or `sqlite://` for events in memory.
            timeout_s: how long to wait for other writers.

        Raises:
            StropError: the folder cannot be written, or the database is damaged, out of reach, or
                made by a newer strop.
        """
        with explained(root):
            (root / "blobs").mkdir(parents=True, exist_ok=True)
        from strop.journal.database import Database

        return cls(root, Database(url or root / "journal.db", timeout_s))

    def append(
        self, kind: str, body: Any, *, run: str = "", key: str | None = None, once: bool = False
    ) -> Event:
        """Record an event; it is on the disk when this returns.

        Args:
            kind: what happened.
            body: a dataclass that reads back as what it was, or a mapping.
            run: the run it belongs to.
            key: unique within run and kind.
            once: return the event that already has this key instead of refusing.

        Raises:
            Duplicate: the key was recorded before.
            StropError: the body would not read back, or the disk failed; nothing was recorded.
        """
        text, db = records.encode(kind, body), self._database
        with db.write() as connection:
            found = db.select(connection, run=run, kind=kind, key=key) if key is not None else []
            if found and not once:
                raise Duplicate(f"{kind} {key!r} of run {run!r} was recorded before; it stands")
            return found[0] if found else db.insert(connection, kind, text, run, key)

    def events(self, run: str | None = None, kind: str | None = None, after: int = 0) -> list[Event]:
        """Return events in order, of one run or kind or of all, with a `seq` above `after`.

        Raises:
            StropError: an event is not what was recorded.
        """
        with self._database.read() as connection:
            return self._database.select(connection, run=run, kind=kind, after=after)

    def put(self, data: bytes) -> str:
        """Store bytes durably; return their SHA-256."""
        return self.blobs.put(data)

    def get(self, digest: str) -> bytes:
        """Return the bytes with this SHA-256, verified."""
        return self.blobs.get(digest)

    def put_candidate(self, candidate: Candidate) -> str:
        """Store a candidate's files; return its id. The first author and parent stand."""
        try:
            files = msgspec.json.encode(dict(candidate.files), order="deterministic")
            id = candidate.id
        except UnicodeEncodeError as error:
            raise StropError(f"a candidate's files must be UTF-8 text: {error}") from error
        stored = _Stored(self.put(files), candidate.author, candidate.parent)
        self.append("candidate_stored", stored, key=id, once=True)
        return id

    def get_candidate(self, id: str) -> Candidate:
        """Return a stored candidate, verified against its id.

        Raises:
            StropError: it is not there, or damaged.
        """
        db = self._database
        with db.read() as connection:
            found = db.select(connection, run="", kind="candidate_stored", key=id)
        if not found:
            raise StropError(f"no candidate {id[:12]} was ever stored in {db.where}")
        stored = found[0].decode(_Stored)
        files = msgspec.json.decode(self.get(stored.blob), type=dict[str, str])
        candidate = Candidate(files, stored.author, stored.parent)
        if candidate.id != id:
            raise StropError(f"blob {stored.blob} is damaged: not the files of candidate {id}")
        return candidate

    def move(
        self,
        deployment: str,
        names: Mapping[str, str | None],
        expect_epoch: int | None = None,
        *,
        why: str = "",
    ) -> int:
        """Point names of a deployment elsewhere, all in one transaction; return the new epoch.

        Args:
            deployment: whose names.
            names: alias (live, canary, previous) to version id; None lets the name go.
            expect_epoch: the epoch that the decision was based on; None takes any.
            why: for the history.

        Raises:
            StaleEpoch: the epoch is not the expected one any more; nothing moved.
        """
        if unknown := set(names) - set(ALIASES):
            raise StropError(f"no alias is called {min(unknown)!r}; they are {', '.join(ALIASES)}")
        db = self._database
        with db.write() as connection:
            now = db.aliases(connection).get(deployment, Aliases(deployment))
            if expect_epoch is not None and now.epoch != expect_epoch:
                raise StaleEpoch(
                    f"the aliases of {deployment!r} are at epoch {now.epoch}, not {expect_epoch}: "
                    "somebody moved them; look again and decide anew"
                )
            moved = Moved.on(now, names, why)
            text = records.encode("alias_moved", moved)
            event = db.insert(connection, "alias_moved", text, deployment, str(moved.epoch))
            db.set_aliases(connection, moved.aliases, event)
        return moved.epoch

    def aliases(self, deployment: str) -> Aliases:
        """Return where a deployment's names point; epoch 0 when they never moved."""
        return self.all_aliases().get(deployment, Aliases(deployment))

    def all_aliases(self) -> dict[str, Aliases]:
        """Return the aliases of every deployment, by its name."""
        with self._database.read() as connection:
            return self._database.aliases(connection)

    def replay_aliases(self) -> dict[str, Aliases]:
        """Return the same from history alone."""
        return records.replay(self.events(kind="alias_moved"))

    def lock(self, name: str) -> AbstractContextManager[None]:
        """Be the only process that works on a deployment, for as long as the block runs.

        Raises:
            StropError: another process is; it is named. Raised on entering.
        """
        return lock.hold(self.root, name)

    def check(self) -> list[str]:
        """Return what is wrong, one line each; an empty list is a sound journal."""
        damaged = _complaints(self.get, self.blobs.digests())
        db = self._database
        try:
            with db.read() as connection:
                wrong = db.integrity(connection)
                events, aliases = db.select(connection), db.aliases(connection)
        except StropError as error:
            return [str(error), *damaged]
        stored = [str(event.key) for event in events if event.kind == "candidate_stored"]
        found = [*wrong, *damaged, *_complaints(self.get_candidate, stored)]
        return list(dict.fromkeys([*found, *_alias_complaints(events, aliases, set(stored))]))

    def close(self) -> None:
        """Let go of the database. Safe to call twice."""
        self._database.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _complaints(get: Callable[[str], object], names: Iterable[str]) -> list[str]:
    wrong = []
    for name in names:
        try:
            get(name)
        except StropError as error:
            wrong.append(str(error))
    return wrong


def _alias_complaints(events: list[Event], aliases: dict[str, Aliases], stored: set[str]) -> list[str]:
    wrong = [
        f"{alias} of {there.deployment!r} points at {version}, which was never stored"
        for there in aliases.values()
        for alias, version in there.names.items()
        if version not in stored
    ]
    try:
        replayed = records.replay(event for event in events if event.kind == "alias_moved")
    except StropError as error:
        return [*wrong, str(error)]
    if replayed != aliases:
        wrong.append("the table of aliases is not what a replay of its history gives")
    return wrong
