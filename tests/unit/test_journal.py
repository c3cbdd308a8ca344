"""The journal's own details: what is said when something is wrong, locks, blobs, start-up."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest

from strop.blobs import Blobs
from strop.core import Candidate, Check, StropError
from strop.journal import Aliases, Event, Journal, Moved
from strop.journal.lock import file_name
from strop.journal.records import replay

CANDIDATE = Candidate({"manifest.toml": "", "forward.py": "y = 1"}, "search", "parent")
NOBODY = 65534


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal.open(tmp_path) as journal:
        yield journal


@contextmanager
def without_privilege() -> Iterator[Path]:
    """Give a folder of a user whom permissions stop, and be that user; root they do not stop."""
    folder = Path(tempfile.mkdtemp())
    root = os.geteuid() == 0
    try:
        if root:
            os.chown(folder, NOBODY, NOBODY)
            os.seteuid(NOBODY)
        yield folder
    finally:
        if root:
            os.seteuid(0)
        for path in (folder, *folder.iterdir()):
            path.chmod(0o777)
        shutil.rmtree(folder)


def database(journal: Journal) -> Path:
    return journal.root / "journal.db"


def test_importing_the_journal_does_not_import_sqlalchemy() -> None:
    program = (
        "import sys, strop.journal, strop.ship.registry; print('sqlalchemy' in sys.modules);"
        "import pathlib; strop.journal.Journal.open(pathlib.Path(sys.argv[1])).close();"
        "print('sqlalchemy' in sys.modules)"
    )
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", program, folder]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_sqlite_is_set_to_be_durable(journal: Journal) -> None:
    pragmas = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout", "recursive_triggers")
    with journal._database.read() as connection:
        found = [connection.exec_driver_sql(f"PRAGMA {pragma}").scalar() for pragma in pragmas]
    assert found == ["wal", 2, 1, 10_000, 1]  # 2 is FULL


def test_any_folder_name_will_do(tmp_path: Path) -> None:
    root = tmp_path / "a b" / "x?mode=ro#%41&"
    with Journal.open(root) as journal:
        journal.append("x", {})
    assert (root / "journal.db").stat().st_size > 0
    with Journal.open(root) as journal:
        assert len(journal.events()) == 1


def test_an_event_says_what_it_is_not(journal: Journal) -> None:
    event = journal.append("judged", {"name": "a", "passed": "perhaps", "measured": ""})
    with pytest.raises(StropError, match=r"event 1 \(judged\) is no Check: .*passed"):
        event.decode(Check)


def test_closing_twice_is_fine(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    journal.close()
    journal.close()


def test_replay_refuses_a_gap() -> None:
    first, second = Moved("demo", 1, {"live": "a"}, {"live": "a"}), Moved("demo", 3, {}, {})
    events = [
        Event(seq, "", "demo", "alias_moved", None, msgspec.json.encode(body).decode())
        for seq, body in enumerate((first, second), 1)
    ]
    assert replay(events[:1]) == {"demo": Aliases("demo", 1, {"live": "a"})}
    with pytest.raises(StropError, match="event 2 \\(epoch 3\\) does not follow from epoch 1"):
        replay(events)


# What is said when the database cannot be used.


@pytest.mark.parametrize("content", [b"x" * 8192, b"SQLite format 3\x00" + b"\xff" * 8000])
def test_a_file_that_is_no_database(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "journal.db").write_bytes(content)
    with pytest.raises(StropError, match=r"journal.db: damaged: restore it .* not a database") as e:
        Journal.open(tmp_path)
    assert "\n" not in str(e.value)
    assert (tmp_path / "journal.db").read_bytes() == content


def test_a_page_overwritten_is_found(journal: Journal) -> None:
    for n in range(200):
        journal.append("x", {"n": n, "text": "t" * 100})
    journal.close()
    size = database(journal).stat().st_size
    with database(journal).open("r+b") as file:
        file.seek(size // 2)
        file.write(b"\xa5" * (size // 2))
    with Journal.open(journal.root) as again:
        with pytest.raises(StropError, match=r"journal.db: damaged: restore it .* malformed"):
            again.events()
        assert any("journal.db" in line for line in again.check())


def test_a_flipped_bit_in_an_event_is_found(journal: Journal) -> None:
    journal.append("x", {"ratio": 1.25})
    journal.append("x", {"ratio": 2.5})
    journal.close()
    data = bytearray(database(journal).read_bytes())
    data[data.index(b'{"ratio":2.5}') + 9] ^= 1  # 2.5 becomes 3.5
    database(journal).write_bytes(data)
    with Journal.open(journal.root) as again:
        with pytest.raises(StropError, match="event 2 is damaged"):
            again.events()
        assert again.events(after=2) == []
        (line,) = again.check()
        assert "event 2 is damaged" in line


def test_somebody_elses_database(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "journal.db")) as other:
        other.execute("CREATE TABLE events (id)")
    with pytest.raises(StropError, match="tables that are not strop's; choose another --home"):
        Journal.open(tmp_path)


def test_a_locked_database(tmp_path: Path) -> None:
    Journal.open(tmp_path).close()
    with (
        Journal.open(tmp_path, timeout_s=0.05) as journal,
        closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StropError, match="another process has been writing for too long"):
            journal.append("x", {})
        assert journal.events() == []  # readers do not wait
        other.execute("COMMIT")
        journal.append("x", {})


def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    Journal.open(tmp_path).close()  # so that nothing is left to import
    with without_privilege() as folder:
        with Journal.open(folder) as journal:
            journal.append("x", {})
            digest = journal.put(b"kept")
        folder.chmod(0o555)
        with pytest.raises(StropError, match=r"Permission denied: check who owns it"):
            Journal.open(folder / "deeper")
        (folder / "blobs").chmod(0o555)
        with pytest.raises(StropError, match="Permission denied: check who owns it"):
            Blobs(folder / "blobs").put(b"new")
        with pytest.raises(StropError, match=r"it (may not be written|cannot be opened): check"):
            Journal.open(folder).append("x", {})
        folder.chmod(0o777)
        with Journal.open(folder) as journal:
            assert len(journal.events()) == 1
            assert journal.get(digest) == b"kept"


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StropError, match="choose another --home"):
        Journal.open(tmp_path / "file")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "'?nonsense'? is not a database url"),
        ("nosuchdialect://x", "is not a database url"),
        ("mysql+nosuchdriver://x", "is not a database url"),
        ("mssql+pyodbc://x", "pyodbc; install it|not in mssql"),
        ("postgresql+pg8000://x", "pg8000; install it|pg8000"),
    ],
)
def test_a_url_that_will_not_do(tmp_path: Path, url: str, message: str) -> None:
    with pytest.raises(StropError, match=message):
        Journal.open(tmp_path, url)


def test_a_full_disk_is_said_and_nothing_is_lost(journal: Journal) -> None:
    kept = journal.append("x", {"n": 1})
    with journal._database.write() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StropError, match=r"the disk is full; what was recorded is safe"):
        journal.append("x", {"text": "t" * 50_000})
    assert journal.events() == [kept]
    assert journal.check() == []
    with journal._database.write() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 100000")
    assert journal.append("x", {"text": "t" * 50_000}).seq == 2


# Blobs.


def test_a_blob_is_named_by_its_content(journal: Journal) -> None:
    data = bytes(range(256)) * 10
    digest = journal.put(data)
    assert digest == hashlib.sha256(data).hexdigest()
    assert journal.get(digest) == data
    assert (journal.root / "blobs" / digest[:2] / digest[2:]).read_bytes() == data
    assert journal.put(b"") == hashlib.sha256(b"").hexdigest()
    assert journal.get(journal.put(b"")) == b""
    assert journal.put(data) == digest
    assert len(journal.blobs.digests()) == 2


@pytest.mark.parametrize("digest", ["", "abc", "../../etc/passwd", "A" * 64, "a" * 63 + "/"])
def test_what_is_no_digest_is_no_blob(journal: Journal, digest: str) -> None:
    with pytest.raises(StropError, match="is not a SHA-256 in hex"):
        journal.get(digest)


def test_a_missing_blob_is_said(journal: Journal) -> None:
    with pytest.raises(StropError, match=f"blob {'a' * 64} is missing"):
        journal.get("a" * 64)


@pytest.mark.parametrize("harm", ["truncate", "flip", "empty", "grow"])
def test_a_damaged_blob_is_found_and_mended(journal: Journal, harm: str) -> None:
    data = b"some content of a blob"
    digest = journal.put(data)
    flipped = bytes([data[0] ^ 0x10]) + data[1:]
    harmed = {"truncate": data[:9], "flip": flipped, "empty": b"", "grow": data + b"!"}[harm]
    journal.blobs.path(digest).write_bytes(harmed)
    with pytest.raises(StropError, match=f"blob {digest} is damaged"):
        journal.get(digest)
    (line,) = journal.check()
    assert f"blob {digest} is damaged" in line
    assert journal.put(data) == digest
    assert journal.get(digest) == data
    assert journal.check() == []


def test_a_blob_is_synced_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    sync, replace = os.fsync, os.replace

    def spy_sync(handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        calls.append(f"sync {path.relative_to(tmp_path) if path.is_dir() else path.read_bytes()}")
        sync(handle)

    def spy_replace(old: Path, new: Path) -> None:
        calls.append("rename")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", spy_sync)
    monkeypatch.setattr(os, "replace", spy_replace)
    digest = Blobs(tmp_path / "blobs").put(b"data")
    folders = [f"sync blobs/{digest[:2]}", "sync blobs", "sync ."]
    assert calls == ["sync b'data'", "rename", *folders]
    calls.clear()
    Blobs(tmp_path / "blobs").put(b"data")
    assert calls == folders


def test_a_write_that_fails_leaves_no_blob(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StropError, match=r"the disk is full .*free some space"):
            journal.put_candidate(CANDIDATE)
    assert [path for path in (journal.root / "blobs").rglob("*") if path.is_file()] == []
    assert journal.events() == []


def test_files_that_are_not_text_are_refused(journal: Journal) -> None:
    with pytest.raises(StropError, match="must be UTF-8 text"):
        journal.put_candidate(Candidate({"forward.py": "\ud800", "manifest.toml": ""}))
    assert journal.events() == []


def test_a_candidate_under_anothers_name_is_refused(journal: Journal) -> None:
    blob = journal.put(json.dumps({"forward.py": "evil", "manifest.toml": ""}).encode())
    body = {"blob": blob, "author": "a", "parent": "p"}
    journal.append("candidate_stored", body, key=CANDIDATE.id)
    with pytest.raises(StropError, match=f"not the files of candidate {CANDIDATE.id}"):
        journal.get_candidate(CANDIDATE.id)
    assert len(journal.check()) == 1


def test_check_finds_a_lost_blob(journal: Journal) -> None:
    journal.put_candidate(CANDIDATE)
    (digest,) = journal.blobs.digests()
    journal.blobs.path(digest).unlink()
    (line,) = journal.check()
    assert f"blob {digest} is missing" in line


# The lock.


def test_a_lock_holds_out_a_second_one_and_names_the_first(journal: Journal) -> None:
    message = (
        rf"another strop \(pid {os.getpid()}\) is optimising 'demo' in {journal.root}; "
        "wait for it, stop it, or give this one its own --home"
    )
    with journal.lock("demo"):
        written = json.loads((journal.root / "demo.lock").read_text())
        assert written["pid"] == os.getpid()
        assert written["since"].startswith("20")
        with pytest.raises(StropError, match=message), journal.lock("demo"):
            pytest.fail("two hold the lock")
        with journal.lock("other"):
            pass
    with journal.lock("demo"):
        pass


def test_a_lock_is_let_go_when_its_block_fails(journal: Journal) -> None:
    with pytest.raises(OSError, match="the block's own"), journal.lock("demo"):
        raise OSError("the block's own")
    with journal.lock("demo"):
        pass


def test_names_of_locks_are_safe_and_differ() -> None:
    names = ["demo", "a/b", "a_b", "a%2Fb", "../x", ".", "..", "", "é", "x" * 400, "x" * 401]
    files = [file_name(name) for name in names]
    assert len(set(files)) == len(names)
    for file in files:
        assert "/" not in file
        assert file.endswith(".lock")
        assert len(file.encode()) < 255
    assert file_name("demo") == "demo.lock"


def test_a_lock_with_a_strange_name(journal: Journal) -> None:
    with journal.lock("../../up/é"):
        pass
    assert [path.name for path in journal.root.glob("*.lock")] == ["..%2F..%2Fup%2F%C3%A9.lock"]
