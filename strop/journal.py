"""Truth on disk: append-only events in one database, blobs beside it, aliases with an epoch.

State is a replay of events. SQLite by default; any database that SQLAlchemy speaks to for teams.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import fcntl
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from strop.blobs import Blobs
from strop.core import Candidate, StropError

if TYPE_CHECKING:
    import sqlalchemy

__all__ = ["Aliases", "Duplicate", "Event", "Journal", "StaleEpoch"]

T = TypeVar("T")


class Duplicate(StropError):
    """An event with this key was recorded before; the first one stands."""


class StaleEpoch(StropError):
    """Somebody else moved the aliases in the meantime."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of history; never changed, never deleted."""

    seq: int
    at: str
    """UTC, ISO 8601 with milliseconds."""
    run: str
    kind: str
    key: str | None
    body: str
    """JSON."""

    def decode(self, kind: type[T]) -> T:
        """Return the body as the record it was."""
        return msgspec.json.decode(self.body, type=kind)


@dataclass(frozen=True, slots=True)
class Aliases:
    """Where a deployment's names point after `epoch` moves; a name that is missing: the baseline."""

    deployment: str
    epoch: int
    names: Mapping[str, str]


class Journal:
    """Open with `Journal.open`; safe to be killed at any moment."""

    def __init__(self, root: Path, engine: sqlalchemy.Engine) -> None:
        self.root = root
        self.blobs = Blobs(root / "blobs")
        self._engine = engine
        self._events, self._aliases = _schema(engine)

    @classmethod
    def open(cls, root: Path, url: str | None = None) -> Journal:
        """Open the journal in a folder, making it if there is none.

        Raises:
            StropError: the folder cannot be written, or the database is damaged.
        """
        with _explained(root):
            (root / "blobs").mkdir(parents=True, exist_ok=True)
            return cls(root, _connect(url or f"sqlite:///{root / 'journal.db'}"))

    def append(
        self, kind: str, body: Any, *, run: str = "", key: str | None = None, once: bool = False
    ) -> Event:
        """Record an event durably.

        Args:
            kind: what happened.
            body: a record of strop's, or a mapping.
            run: the run it belongs to.
            key: unique within run and kind.
            once: return the event that already has this key instead of refusing.

        Raises:
            Duplicate: the key was recorded before.
        """
        from sqlalchemy.exc import IntegrityError

        with _explained(self.root):
            try:
                with self._engine.begin() as connection:
                    return self._insert(connection, kind, body, run, key)
            except IntegrityError:
                if once:
                    found = [e for e in self.events(run=run, kind=kind) if e.key == key]
                    return found[0]
                raise Duplicate(f"{kind} {key!r} of run {run!r} was recorded before") from None

    def events(
        self, *, run: str | None = None, kind: str | None = None, after: int = 0
    ) -> list[Event]:
        """Return events in order, of one run or kind or of all."""
        import sqlalchemy as sa

        table = self._events
        query = sa.select(table).where(table.c.seq > after).order_by(table.c.seq)
        if run is not None:
            query = query.where(table.c.run == run)
        if kind is not None:
            query = query.where(table.c.kind == kind)
        with _explained(self.root), self._engine.connect() as connection:
            return [Event(*row) for row in connection.execute(query)]

    def put_candidate(self, candidate: Candidate) -> str:
        """Store a candidate's files; return its id."""
        record = {"id": candidate.id, "digest": self._put(msgspec.json.encode(candidate))}
        self.append("candidate_stored", record, key=candidate.id, once=True)
        return candidate.id

    def get_candidate(self, id: str) -> Candidate:
        """Return a stored candidate, verified against its id.

        Raises:
            StropError: it is not there, or damaged.
        """
        for event in self.events(kind="candidate_stored"):
            if event.key == id:
                data = self.blobs.get(event.decode(dict[str, str])["digest"])
                candidate = msgspec.json.decode(data, type=Candidate)
                if candidate.id != id:
                    raise StropError(f"candidate {id[:12]} is not what its name says")
                return candidate
        raise StropError(f"no candidate {id[:12]} in {self.root}")

    def move(
        self, deployment: str, names: Mapping[str, str | None], expect_epoch: int | None = None
    ) -> Aliases:
        """Point names of a deployment elsewhere, all in one transaction; None removes a name.

        Raises:
            StaleEpoch: the epoch is not the expected one any more.
        """
        with _explained(self.root), self._engine.begin() as connection:
            now = self._read_aliases(connection, deployment, lock=True)
            if expect_epoch is not None and now.epoch != expect_epoch:
                raise StaleEpoch(
                    f"{deployment!r} is at epoch {now.epoch}, not {expect_epoch}: look again"
                )
            merged = {**now.names, **names}
            after = {name: id for name, id in merged.items() if id is not None}
            moved = Aliases(deployment, now.epoch + 1, after)
            self._write_aliases(connection, moved)
            self._insert(connection, "alias_moved", moved, deployment, str(moved.epoch))
            return moved

    def aliases(self, deployment: str) -> Aliases:
        """Return where a deployment's names point."""
        with _explained(self.root), self._engine.connect() as connection:
            return self._read_aliases(connection, deployment)

    def replay_aliases(self, deployment: str) -> Aliases:
        """Return the same by replaying history."""
        moves = self.events(run=deployment, kind="alias_moved")
        return moves[-1].decode(Aliases) if moves else Aliases(deployment, 0, {})

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Be the only process that works on a deployment; the kernel lets go when it dies.

        Raises:
            StropError: another process is; it is named.
        """
        path = self.root / (re.sub(r"[^\w.-]", "_", name) + ".lock")
        with _explained(self.root), path.open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise StropError(
                    f"another strop (pid {file.read().strip() or '?'}) is working on {name!r} in "
                    f"{self.root}; wait for it, stop it, or give this one its own --home"
                ) from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    def check(self) -> list[str]:
        """Return what is wrong, one line each: damaged blobs, aliases that history denies."""
        wrong = []
        for event in self.events(kind="candidate_stored"):
            try:
                self.get_candidate(str(event.key))
            except StropError as error:
                wrong.append(str(error))
        for name in {event.run for event in self.events(kind="alias_moved")}:
            if self.aliases(name) != self.replay_aliases(name):
                wrong.append(f"the aliases of {name!r} are not what history says")
        return wrong

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _put(self, data: bytes) -> str:
        with _explained(self.root):
            return self.blobs.put(data)

    def _insert(
        self, connection: sqlalchemy.Connection, kind: str, body: Any, run: str, key: str | None
    ) -> Event:
        at = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        text = msgspec.json.encode(body).decode()
        values = {"at": at, "run": run, "kind": kind, "key": key, "body": text}
        done = connection.execute(self._events.insert().values(values))
        (seq,) = done.inserted_primary_key or (0,)
        return Event(seq, at, run, kind, key, text)

    def _read_aliases(
        self, connection: sqlalchemy.Connection, deployment: str, *, lock: bool = False
    ) -> Aliases:
        import sqlalchemy as sa

        query = sa.select(self._aliases.c.body).where(self._aliases.c.deployment == deployment)
        body = connection.execute(query.with_for_update() if lock else query).scalar()
        return msgspec.json.decode(body, type=Aliases) if body else Aliases(deployment, 0, {})

    def _write_aliases(self, connection: sqlalchemy.Connection, aliases: Aliases) -> None:
        table, body = self._aliases, msgspec.json.encode(aliases).decode()
        connection.execute(table.delete().where(table.c.deployment == aliases.deployment))
        connection.execute(table.insert().values(deployment=aliases.deployment, body=body))


def _connect(url: str) -> sqlalchemy.Engine:
    import sqlalchemy as sa

    engine = sa.create_engine(url)
    if url.startswith("sqlite"):

        @sa.event.listens_for(engine, "connect")
        def _durable(connection: Any, _: object) -> None:
            connection.isolation_level = None  # transactions are begun below, not by the driver
            for pragma in ("busy_timeout = 10000", "journal_mode = WAL", "synchronous = FULL"):
                connection.execute(f"PRAGMA {pragma}")

        @sa.event.listens_for(engine, "begin")
        def _immediate(connection: sqlalchemy.Connection) -> None:
            # A reader that turns writer would fail where a writer from the start waits.
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _schema(engine: sqlalchemy.Engine) -> tuple[sqlalchemy.Table, sqlalchemy.Table]:
    import sqlalchemy as sa

    metadata = sa.MetaData()
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    events = sa.Table(
        "events",
        metadata,
        sa.Column("seq", number, primary_key=True, autoincrement=True),
        sa.Column("at", sa.String, nullable=False),
        sa.Column("run", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False, index=True),
        sa.Column("key", sa.String),
        sa.Column("body", sa.Text, nullable=False),
        sa.UniqueConstraint("run", "kind", "key"),
    )
    aliases = sa.Table(
        "aliases",
        metadata,
        sa.Column("deployment", sa.String, primary_key=True),
        sa.Column("body", sa.Text, nullable=False),
    )
    metadata.create_all(engine)
    if engine.dialect.name == "sqlite":
        with engine.begin() as connection:
            for verb in ("UPDATE", "DELETE"):
                connection.exec_driver_sql(
                    f"CREATE TRIGGER IF NOT EXISTS events_no_{verb.lower()} BEFORE {verb} ON events "
                    "BEGIN SELECT RAISE(ABORT, 'events are append-only'); END"
                )
    return events, aliases


@contextlib.contextmanager
def _explained(root: Path) -> Iterator[None]:
    """Turn what a disk or a database complains about into one line."""
    try:
        yield
    except StropError:
        raise
    except Exception as error:
        if error.__class__.__module__.startswith("sqlalchemy"):
            raise StropError(_database_line(root, str(getattr(error, "orig", error)))) from None
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise StropError(f"{root}: the disk is full; free some space and go on") from None
        if isinstance(error, OSError):
            raise StropError(f"{root}: {error.strerror or error}; choose another --home") from None
        raise


def _database_line(root: Path, why: str) -> str:
    if "full" in why:
        return f"{root}: the disk is full; free some space and go on"
    if "not a database" in why or "malformed" in why:
        return f"{root}/journal.db is damaged ({why}); restore it from a backup or move it away"
    if "readonly" in why or "unable to open" in why:
        return (
            f"{root}/journal.db cannot be written ({why}); check its owner or choose another --home"
        )
    return f"{root}/journal.db: {why}"
