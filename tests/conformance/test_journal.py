"""What every database under a journal must do: SQLite in a file, in memory, and PostgreSQL."""

from __future__ import annotations

import contextlib
import getpass
import importlib.util
import itertools
import math
import os
import random
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from strop.core import (
    Candidate,
    Check,
    Cluster,
    Fingerprint,
    Guards,
    Interval,
    Measurement,
    Phase,
    Proposal,
    Reason,
    Status,
    StropError,
    Tier,
    TokenSource,
    Trial,
    Verdict,
    Version,
    Workload,
)
from strop.journal import Aliases, Duplicate, Journal, StaleEpoch
from strop.journal.database import SCHEMA

Opener = Callable[[], Journal]

INTERVAL = Interval(1.25, 1.2, 1.3, 24)
MEASUREMENT = Measurement(
    tier=Tier.SLOW,
    workload_version="azure-1",
    tokens=TokenSource.REAL,
    overall=INTERVAL,
    clusters={0: INTERVAL, 11: Interval(1.0, 0.9, 1.1, 6)},
    e_value=1e30,
    swap_ms=0.1 + 0.2,
    phases={Phase.PREFILL: INTERVAL, Phase.DECODE: INTERVAL},
)
CANDIDATE = Candidate({"forward.py": "x = 'é✓\U0001f600'\n", "manifest.toml": ""}, "search", "p")
FINGERPRINT = Fingerprint("torch", "cpu", 2, 2, "float32", "ab", {"torch": "2"}, {"mkldnn": "on"})
PASSED = Verdict("c", Status.PASSED, None, "", (Check("a", True, "1"),), None, MEASUREMENT, ("net",))
RECORDS = [
    PASSED,
    Verdict("c", Status.FAILED, Reason.LATE_WRITE, "wrote after\nthe copy"),
    MEASUREMENT,
    Version("demo", "c", FINGERPRINT, Guards("cpu", "float32", 4, 512, ((1, 2), (3,))), MEASUREMENT),
    Workload("w", "1", 10, (Cluster(0, 5, 6, 1.0, isl_range=(1, 9)),), TokenSource.SYNTHETIC),
    CANDIDATE,
    Trial(Proposal(0, "rewrites", "c", {"n": 1, "x": 0.5, "on": True, "s": "q"}), PASSED, 1.5),
]


@dataclass
class Server:
    """A PostgreSQL of the test's own, reachable over a socket in its folder."""

    folder: Path
    driver: str
    numbers: Iterator[int]

    def url(self, database: str) -> str:
        return f"postgresql+{self.driver}://strop@/{database}?host={self.folder}"

    def fresh_database(self) -> str:
        name = f"journal_{next(self.numbers)}"
        engine = sa.create_engine(self.url("postgres"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name}")
        engine.dispose()
        return self.url(name)


def binaries() -> Path | None:
    """Return the folder of initdb and postgres; Debian keeps it out of PATH."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return folders[-1] if folders else None


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    programs = binaries()
    if programs is None:
        pytest.skip("no PostgreSQL server here (initdb is neither in PATH nor in /usr/lib/postgresql)")
    drivers = [name for name in ("psycopg", "psycopg2") if importlib.util.find_spec(name)]
    if not drivers:
        pytest.skip("no PostgreSQL driver here (psycopg or psycopg2)")
    # Short: the path of a socket ends at 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
    # The server refuses to run as root.
    root = os.geteuid() == 0
    if root:
        shutil.chown(folder, "nobody")
    other: dict[str, Any] = {"user": "nobody", "extra_groups": []} if root else {}
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.STDOUT, "cwd": folder}
    data = folder / "data"
    flags = ["-U", "strop", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"]
    subprocess.run([programs / "initdb", "-D", data, *flags], check=True, **quiet, **other)
    options = ["-c", "listen_addresses=", "-c", "fsync=off"]
    command = [programs / "postgres", "-D", data, "-k", folder, *options]
    process = subprocess.Popen(command, **quiet, **other)
    try:
        found = Server(folder, drivers[0], itertools.count())
        wait_for(found, process)
        yield found
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


def wait_for(server: Server, process: subprocess.Popen[bytes]) -> None:
    engine = sa.create_engine(server.url("postgres"))
    deadline = time.monotonic() + 30
    while True:
        try:
            engine.connect().close()
            break
        except sa.exc.OperationalError:
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < deadline, f"no answer as {getpass.getuser()}"
            time.sleep(0.05)
    engine.dispose()


@pytest.fixture(params=["file", "memory", "postgresql"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Open the same journal again and again; one in memory cannot be opened twice."""
    if request.param == "file":
        return lambda: Journal.open(tmp_path)
    if request.param == "memory":
        return lambda: Journal.open(tmp_path, "sqlite://")
    url = request.getfixturevalue("server").fresh_database()
    return lambda: Journal.open(tmp_path, url)


@pytest.fixture
def journal(opener: Opener) -> Iterator[Journal]:
    with opener() as journal:
        yield journal


@pytest.fixture
def shared(opener: Opener, request: pytest.FixtureRequest) -> Opener:
    if "memory" in request.node.callspec.id:
        pytest.skip("a journal in memory has one owner")
    return opener


def execute(journal: Journal, statement: str) -> None:
    with journal._database.write() as connection:
        connection.exec_driver_sql(statement)


def test_events_come_back_in_order(journal: Journal) -> None:
    first = journal.append("started", {"n": 1}, run="a")
    second = journal.append("judged", {"n": 2}, run="a", key="k")
    third = journal.append("judged", {"n": 3}, run="b")
    assert journal.events() == [first, second, third]
    assert first.seq < second.seq < third.seq
    assert (second.run, second.kind, second.key) == ("a", "judged", "k")
    assert second.decode(dict[str, int]) == {"n": 2}
    assert journal.events("a") == [first, second]
    assert journal.events(kind="judged") == [second, third]
    assert journal.events(run="a", kind="judged") == [second]
    assert journal.events(after=first.seq) == [second, third]
    assert journal.events(run="") == []


def test_the_time_is_utc_with_milliseconds(journal: Journal) -> None:
    at = journal.append("x", {}).at
    assert len(at) == len("2026-01-02T03:04:05.678Z")
    assert at[10] == "T"
    assert at.endswith("Z")


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_records_come_back_as_what_they_were(journal: Journal, record: Any) -> None:
    journal.append("r", record)
    (event,) = journal.events()
    back = event.decode(type(record))
    assert back == record
    assert repr(back) == repr(record)  # int keys are int again, enum keys enums, tuples tuples


def test_a_key_is_used_once_in_a_run_and_kind(journal: Journal) -> None:
    event = journal.append("judged", {"n": 1}, run="a", key="k")
    with pytest.raises(Duplicate, match="'k' of run 'a'"):
        journal.append("judged", {"n": 2}, run="a", key="k")
    assert journal.append("judged", {"n": 3}, run="a", key="k", once=True) == event
    others = [
        journal.append("judged", {}, run="b", key="k"),
        journal.append("started", {}, run="a", key="k"),
        journal.append("judged", {}, run="a", key=""),
        journal.append("judged", {}, run="a"),
        journal.append("judged", {}, run="a"),
    ]
    assert journal.events() == [event, *others]
    with pytest.raises(Duplicate):
        journal.append("judged", {}, run="a", key="")


def test_threads_that_record_one_thing_record_it_once(journal: Journal) -> None:
    seen: list[int] = []

    def record() -> None:
        seen.append(journal.append("judged", {}, key="k", once=True).seq)

    in_threads(record, 8)
    (event,) = journal.events()
    assert seen == [event.seq] * 8


def test_a_reader_that_follows_misses_nothing(journal: Journal) -> None:
    """Sequence numbers become visible in order, whoever writes."""
    seen: list[int] = []
    done = threading.Event()

    def follow() -> None:
        last = False
        while not last:
            last = done.is_set()
            seen.extend(e.seq for e in journal.events(after=seen[-1] if seen else 0))
            time.sleep(0.001)

    reader = threading.Thread(target=follow)
    reader.start()
    try:
        in_threads(lambda: [journal.append("x", {}) for _ in range(15)], 4)
    finally:
        done.set()
        reader.join()
    assert seen == [event.seq for event in journal.events()]
    assert len(seen) == 60


@pytest.mark.parametrize(
    "body",
    [
        {"x": math.inf},
        {"x": [1.0, math.nan]},
        {"x": "\ud800"},
        {"x": object()},
        [1, 2],
        "text",
        Check("a", True, 3),  # type: ignore[arg-type]
        Proposal(0, "s", "c", {"x": math.inf}),
    ],
    ids=["infinite", "nan", "surrogate", "object", "list", "text", "wrong field", "inner"],
)
def test_what_would_not_read_back_is_refused(journal: Journal, body: Any) -> None:
    with pytest.raises(StropError, match=r"recorded as 'x': it would not read back"):
        journal.append("x", body)
    assert journal.events() == []


def test_strange_text_survives(journal: Journal) -> None:
    text = "\x00 ' \" \\ \n \u2028 é \U0001f600 %s :x ; DROP TABLE events"
    plain = text.replace("\x00", "")
    event = journal.append("x", {"t": text}, run=plain, key=plain)
    assert event.decode(dict[str, str]) == {"t": text}
    assert journal.events(run=plain) == [event]
    assert journal.append("x", {}, run=plain, key=plain, once=True) == event


@pytest.mark.parametrize("statement", ["UPDATE events SET body = '{}'", "DELETE FROM events"])
def test_the_database_itself_keeps_events(journal: Journal, statement: str) -> None:
    event = journal.append("x", {"n": 1})
    with pytest.raises(StropError, match="append-only"):
        execute(journal, statement)
    assert journal.events() == [event]


def test_a_replacing_insert_or_a_truncation_is_refused(journal: Journal) -> None:
    event = journal.append("x", {"n": 1})
    if journal._database._engine.dialect.name == "sqlite":
        values = f"{event.seq}, 'at', 'run', 'kind', 'key', 'body', 0"
        statement = f"INSERT OR REPLACE INTO events VALUES ({values})"
    else:
        statement = "TRUNCATE events CASCADE"
    with pytest.raises(StropError, match="append-only"):
        execute(journal, statement)
    assert journal.events() == [event]


def test_aliases_move_with_a_rising_epoch(journal: Journal) -> None:
    assert journal.aliases("demo") == Aliases("demo", 0, {})
    assert journal.move("demo", {"live": "a", "canary": "b"}) == 1
    assert journal.move("demo", {"live": "b", "previous": "a", "canary": None}, 1) == 2
    assert journal.aliases("demo") == Aliases("demo", 2, {"live": "b", "previous": "a"})
    assert journal.aliases("other").epoch == 0
    assert journal.move("demo", {"live": None, "previous": None}) == 3
    assert journal.aliases("demo") == Aliases("demo", 3, {})


def test_a_stale_epoch_moves_nothing(journal: Journal) -> None:
    journal.move("demo", {"live": "a"})
    for stale in (0, 2):
        with pytest.raises(StaleEpoch, match=f"at epoch 1, not {stale}"):
            journal.move("demo", {"live": "b"}, stale)
    assert journal.aliases("demo") == Aliases("demo", 1, {"live": "a"})
    assert len(journal.events(kind="alias_moved")) == 1


def test_an_unknown_alias_is_refused(journal: Journal) -> None:
    with pytest.raises(StropError, match="'alive'; they are live, canary, previous"):
        journal.move("demo", {"alive": "a"})
    assert journal.events() == []


def test_of_many_movers_from_one_epoch_one_wins(journal: Journal) -> None:
    won: list[int] = []

    def move() -> None:
        with contextlib.suppress(StaleEpoch):
            won.append(journal.move("demo", {"live": "a"}, 0))

    in_threads(move, 8)
    assert won == [1]


def test_a_move_and_its_event_stand_together(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("killed here")

    with monkeypatch.context() as patch:
        patch.setattr(journal._database, "set_aliases", fail)
        with pytest.raises(RuntimeError, match="killed"):
            journal.move("demo", {"live": "a"})
    assert journal.events() == []
    assert journal.move("demo", {"live": "a"}) == 1


def test_history_replays_to_the_table(journal: Journal) -> None:
    rng = random.Random(7)
    for _ in range(40):
        names = rng.sample(["live", "canary", "previous"], rng.randint(0, 3))
        changes = {name: rng.choice(["a", "b", None]) for name in names}
        journal.move(rng.choice(["x", "y", "z"]), changes, why="chance")
    table = journal.all_aliases()
    assert set(table) == {"x", "y", "z"}
    assert sum(aliases.epoch for aliases in table.values()) == 40
    assert journal.replay_aliases() == table


def test_check_finds_a_table_that_history_denies(journal: Journal) -> None:
    id = journal.put_candidate(CANDIDATE)
    journal.move("demo", {"live": id})
    assert journal.check() == []
    execute(journal, "UPDATE aliases SET epoch = 9")
    assert journal.check() == ["the table of aliases is not what a replay of its history gives"]


def test_check_finds_an_alias_of_nothing(journal: Journal) -> None:
    journal.move("demo", {"live": "a"})
    assert journal.check() == ["live of 'demo' points at a, which was never stored"]


def test_candidates_are_content_addressed(journal: Journal) -> None:
    assert journal.put_candidate(CANDIDATE) == CANDIDATE.id
    assert journal.get_candidate(CANDIDATE.id) == CANDIDATE
    again = Candidate(dict(reversed(CANDIDATE.files.items())), "somebody else", "q")
    assert journal.put_candidate(again) == CANDIDATE.id
    assert journal.get_candidate(CANDIDATE.id).author == "search"
    assert len(journal.blobs.digests()) == 1
    with pytest.raises(StropError, match="no candidate ffff"):
        journal.get_candidate("f" * 64)


def test_all_is_there_after_opening_again(shared: Opener) -> None:
    with shared() as journal:
        event = journal.append("x", PASSED, key="k")
        id = journal.put_candidate(CANDIDATE)
        journal.move("demo", {"live": id})
    with shared() as journal:
        assert journal.events(kind="x") == [event]
        assert journal.get_candidate(id) == CANDIDATE
        assert journal.aliases("demo") == Aliases("demo", 1, {"live": id})
        assert journal.check() == []


def test_a_first_opening_by_many_makes_one_journal(shared: Opener) -> None:
    def use() -> None:
        with shared() as journal:
            journal.append("x", {})

    in_threads(use, 6)
    with shared() as journal:
        assert len(journal.events()) == 6


def test_a_newer_schema_is_refused(shared: Opener) -> None:
    with shared() as journal:
        execute(journal, f"UPDATE strop_schema SET version = {SCHEMA + 1}")
    with pytest.raises(StropError, match=f"schema {SCHEMA + 1} .* newer strop; upgrade"):
        shared()


def in_threads(work: Callable[[], object], count: int) -> None:
    """Run the same work in threads at once; what one raises fails the test."""
    raised: list[BaseException] = []
    start = threading.Barrier(count)

    def run() -> None:
        start.wait()
        try:
            work()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert raised == []
