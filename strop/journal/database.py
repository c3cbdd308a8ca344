"""The journal's tables in one database. Imports SQLAlchemy, so it is imported when one opens."""

from __future__ import annotations

import contextlib
import sqlite3
import time
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from strop.core import StropError
from strop.journal.records import ALIASES, Aliases, Event

__all__ = ["SCHEMA", "Database"]

SCHEMA = 1
"""Version of the tables that this strop reads and writes."""
_WRITERS = int.from_bytes(b"strop", "big")
"""PostgreSQL's advisory lock that every writer takes."""

_METADATA = sa.MetaData()
_SCHEMA = sa.Table("strop_schema", _METADATA, sa.Column("version", sa.Integer, nullable=False))
_EVENTS = sa.Table(
    "events",
    _METADATA,
    sa.Column(
        "seq",
        sa.BigInteger().with_variant(sa.Integer, "sqlite"),
        primary_key=True,
        autoincrement=True,
    ),
    sa.Column("at", sa.Text, nullable=False),
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False, index=True),
    sa.Column("key", sa.Text),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("crc", sa.BigInteger, nullable=False),
    sa.UniqueConstraint("run", "kind", "key"),
    sqlite_autoincrement=True,
)
_ALIASES = sa.Table(
    "aliases",
    _METADATA,
    sa.Column("deployment", sa.Text, primary_key=True),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("event", sa.ForeignKey(_EVENTS.c.seq), nullable=False),
    *(sa.Column(name, sa.Text) for name in ALIASES),
)

_APPEND_ONLY = {
    "sqlite": [
        f"CREATE TRIGGER events_no_{verb.lower()} BEFORE {verb} ON events "
        "BEGIN SELECT RAISE(ABORT, 'events are append-only'); END"
        for verb in ("UPDATE", "DELETE")
    ],
    "postgresql": [
        "CREATE FUNCTION strop_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'events are append-only'; END $$",
        "CREATE TRIGGER events_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON events "
        "FOR EACH STATEMENT EXECUTE FUNCTION strop_append_only()",
    ],
}


class Database:
    """Reads see one state; a write stands whole or not at all, and writers take turns."""

    def __init__(self, url: str | Path, timeout_s: float) -> None:
        """Open, making the tables if there are none.

        Raises:
            StropError: out of reach, damaged, not strop's, or made by a newer strop.
        """
        self._engine = _engine(url, timeout_s)
        where = self._engine.url
        self.where = where.database if _in_file(where) else where.render_as_string()
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of all connections."""
        self._engine.dispose()

    @contextlib.contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Give a connection that sees one state throughout."""
        with self._transaction(write=False) as connection:
            yield connection

    @contextlib.contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Give a connection that is the only writer; commits at the end, durably."""
        with self._transaction(write=True) as connection:
            yield connection

    def select(self, connection: sa.Connection, *, after: int = 0, **equal: str | None) -> list[Event]:
        """Return events in order; a column of `equal` that is None is not looked at."""
        query = _EVENTS.select().where(_EVENTS.c.seq > after).order_by(_EVENTS.c.seq)
        for column, value in equal.items():
            if value is not None:
                query = query.where(_EVENTS.c[column] == value)
        return [self._event(*row) for row in connection.execute(query)]

    def insert(self, connection: sa.Connection, kind: str, body: str, run: str, key: str | None) -> Event:
        """Append an event."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        values = {"at": at, "run": run, "kind": kind, "key": key, "body": body}
        row = _EVENTS.insert().values(**values, crc=_crc(at, run, kind, key, body))
        (seq,) = connection.execute(row).inserted_primary_key or (0,)
        return Event(seq, at, run, kind, key, body)

    def aliases(self, connection: sa.Connection) -> dict[str, Aliases]:
        """Return the table of aliases."""
        found = {}
        for row in connection.execute(_ALIASES.select()).mappings():
            names = {name: row[name] for name in ALIASES if row[name] is not None}
            found[row["deployment"]] = Aliases(row["deployment"], row["epoch"], names)
        return found

    def set_aliases(self, connection: sa.Connection, aliases: Aliases, event: Event) -> None:
        """Replace the row of a deployment by what an event made of it."""
        names = {name: aliases.names.get(name) for name in ALIASES}
        values = {"epoch": aliases.epoch, "event": event.seq, **names}
        key = _ALIASES.c.deployment == aliases.deployment
        if not connection.execute(_ALIASES.update().where(key).values(**values)).rowcount:
            row = _ALIASES.insert().values(deployment=aliases.deployment, **values)
            connection.execute(row)

    def integrity(self, connection: sa.Connection) -> list[str]:
        """Return what the database itself finds wrong with its files."""
        if connection.dialect.name != "sqlite":
            return []
        found = connection.exec_driver_sql("PRAGMA integrity_check").scalars().all()
        orphans = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
        wrong = [f"{self.where}: {line}" for line in found if line != "ok"]
        return wrong + [f"{self.where}: a row of {row[0]} names no event" for row in orphans]

    def _event(self, seq: int, at: str, run: str, kind: str, key: str | None, body: str, crc: int) -> Event:
        if _crc(at, run, kind, key, body) != crc:
            raise StropError(
                f"{self.where}: event {seq} is damaged: not what was recorded; "
                "restore the database from a backup"
            )
        return Event(seq, at, run, kind, key, body)

    @contextlib.contextmanager
    def _transaction(self, *, write: bool) -> Iterator[sa.Connection]:
        try:
            with self._engine.connect() as connection:
                connection.execution_options(strop_write=write)
                with connection.begin():
                    yield connection
        except SQLAlchemyError as error:
            raise StropError(f"{self.where}: {_explanation(error)}") from error

    def _prepare(self) -> None:
        with self.read() as connection:
            version = _version(connection)
        if version is None:
            with self.write() as connection:
                # Another process may have been first.
                version = _version(connection) or self._create(connection)
        if version != SCHEMA:
            raise StropError(
                f"{self.where} has schema {version} and this strop knows {SCHEMA}: "
                "it was made by a newer strop; upgrade this one"
            )

    def _create(self, connection: sa.Connection) -> int:
        if sa.inspect(connection).has_table(_EVENTS.name):
            raise StropError(f"{self.where} has tables that are not strop's; choose another --home")
        _METADATA.create_all(connection)
        for statement in _APPEND_ONLY.get(connection.dialect.name, []):
            connection.exec_driver_sql(statement)
        connection.execute(_SCHEMA.insert().values(version=SCHEMA))
        return SCHEMA


def _engine(url: str | Path, timeout_s: float) -> sa.Engine:
    try:
        parsed = sa.URL.create("sqlite", database=str(url)) if isinstance(url, Path) else sa.make_url(url)
        options: dict[str, Any] = {}
        if parsed.get_backend_name() == "sqlite":
            options["connect_args"] = {"timeout": timeout_s}
            if not _in_file(parsed):
                # The one connection is the database: keep it, and let threads take turns.
                options["connect_args"]["check_same_thread"] = False
                options |= {"poolclass": sa.QueuePool, "pool_size": 1, "max_overflow": 0}
                options["pool_timeout"] = timeout_s
        engine = sa.create_engine(parsed, **options)
    except ModuleNotFoundError as error:
        raise StropError(f"the journal's url needs the package {error.name}; install it") from error
    except SQLAlchemyError as error:
        raise StropError(f"{url} is not a database url: {error}") from error
    if engine.dialect.name not in _APPEND_ONLY:
        raise StropError(f"a journal lives in SQLite or PostgreSQL, not in {engine.dialect.name}")
    sa.event.listen(engine, "connect", lambda connection, _: _durable(connection, timeout_s))
    sa.event.listen(engine, "begin", lambda connection: _begin(connection, timeout_s))
    return engine


def _durable(connection: Any, timeout_s: float) -> None:
    if not type(connection).__module__.startswith("sqlite3"):
        return  # PostgreSQL is durable as it comes
    connection.isolation_level = None  # `_begin` says BEGIN, not the driver
    _turn_on_wal(connection, timeout_s)
    for pragma in ("synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")
    # Without it INSERT OR REPLACE would delete behind the triggers' back.
    connection.execute("PRAGMA recursive_triggers = ON")


def _turn_on_wal(connection: Any, timeout_s: float) -> None:
    """Change the journal mode; SQLite's own timeout does not cover this one statement."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.005)


def _begin(connection: sa.Connection, timeout_s: float) -> None:
    write = connection.get_execution_options().get("strop_write", False)
    if connection.dialect.name == "sqlite":
        # A reader that turns writer would fail where a writer from the start waits.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
    elif write:
        # One writer at a time, as in SQLite: else a lower seq could appear after a higher one.
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {max(1, round(1000 * timeout_s))}")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITERS})")
    else:
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")


def _version(connection: sa.Connection) -> int | None:
    if not sa.inspect(connection).has_table(_SCHEMA.name):
        return None
    return connection.execute(sa.select(sa.func.max(_SCHEMA.c.version))).scalar()


def _in_file(url: sa.URL) -> bool:
    return url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:")


def _crc(*fields: str | None) -> int:
    """CRC-32 over length-prefixed fields: finds any flipped bit that SQLite would not."""
    crc = 0
    for value in fields:
        data = b"" if value is None else value.encode()
        size = -1 if value is None else len(data)
        crc = zlib.crc32(data, zlib.crc32(size.to_bytes(8, "big", signed=True), crc))
    return crc


_KNOWN = (
    ("is full", "the disk is full; what was recorded is safe: free some space and go on"),
    ("disk I/O", "the disk is full or failing; what was recorded is safe: mend it and go on"),
    ("not a database", "damaged: restore it from a backup, or move it away to start afresh"),
    ("malformed", "damaged: restore it from a backup, or move it away to start afresh"),
    ("is locked", "another process has been writing for too long; wait for it or stop it"),
    ("lock timeout", "another process has been writing for too long; wait for it or stop it"),
    ("readonly", "it may not be written: check who owns it, or choose another --home"),
    ("unable to open", "it cannot be opened: check its folder, or choose another --home"),
)


def _explanation(error: SQLAlchemyError) -> str:
    lines = str(getattr(error, "orig", None) or error).strip().splitlines() or [repr(error)]
    for sign, meaning in _KNOWN:
        if sign in lines[0]:
            return f"{meaning} ({lines[0]})"
    return lines[0]
