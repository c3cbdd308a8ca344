"""The journal is killed, filled, torn and raced for. What it acknowledged is there; nothing twice."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from strop.core import (
    Candidate,
    Fingerprint,
    Guards,
    Interval,
    Measurement,
    StropError,
    Tier,
    TokenSource,
    Version,
)
from strop.journal import Journal, StaleEpoch
from strop.ship.registry import Registry

ROUNDS = 24
GAIN = Interval(1.2, 1.1, 1.3, 60)
MEASURED = Measurement(Tier.SLOW, "w-1", TokenSource.REAL, GAIN, {0: GAIN}, 99.0, 0.5)

Say = Callable[[str], None]


class Child:
    """A forked process; what it says before it dies can be read."""

    def __init__(self, work: Callable[[Say], None]) -> None:
        self._read, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.close(self._read)
                work(lambda line: os.write(write, f"{line}\n".encode()))
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(write)
        self._said = b""

    def wait_for(self, line: str) -> None:
        """Read until the child has said a line."""
        while f"{line}\n".encode() not in self._said:
            piece = os.read(self._read, 1 << 16)
            assert piece, f"the child ended before it said {line!r}"
            self._said += piece

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def end(self) -> tuple[int, list[str]]:
        """Wait for the end; return the exit status (negative: a signal) and the whole lines."""
        while piece := os.read(self._read, 1 << 16):
            self._said += piece
        os.close(self._read)
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status), self._said.decode().split("\n")[:-1]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB; only root can mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "strop-test", str(folder)]
    if os.geteuid() or not shutil.which("mount") or subprocess.run(command, check=False).returncode:
        pytest.skip("a small disk needs a root that may mount one")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def candidate(text: object) -> Candidate:
    return Candidate({"forward.py": f"x = {text!r}\n", "manifest.toml": ""}, "test")


def version(journal: Journal, text: object) -> Version:
    """Store and publish a version."""
    id = journal.put_candidate(candidate(text))
    fingerprint = Fingerprint("torch", "cpu", 2, 2, "float32", "hash")
    made = Version("demo", id, fingerprint, Guards("cpu", "float32", 4, 512), MEASURED)
    Registry(journal).publish(made)
    return made


def controller(root: Path, say: Say) -> None:
    """Do what a search does, for ever: record a step once, store, move; say what is done."""
    with Journal.open(root) as journal, journal.lock("demo"):
        n = max(0, len(journal.events(kind="step")) - 1)
        while True:
            # The first after a restart may be there already: once, not twice.
            journal.append("step", {"n": n}, run="r", key=str(n), once=True)
            say(f"step {n}")
            say(f"blob {journal.put(random.Random(n).randbytes(3000))}")
            id = journal.put_candidate(candidate(n))
            say(f"candidate {id}")
            live = journal.aliases("demo").names.get("live")
            say(f"move {journal.move('demo', {'live': id, 'previous': live})} {id}")
            n += 1


def acknowledged_are_there(root: Path, said: list[str]) -> None:
    """Check the history against everything that was ever acknowledged."""
    with Journal.open(root) as journal:
        assert journal.check() == []
        steps = [event.decode(dict[str, int])["n"] for event in journal.events(kind="step")]
        assert steps == list(range(len(steps)))
        moves = {move.aliases.epoch: move.aliases for move in Registry(journal).history("demo")}
        assert list(moves) == list(range(1, len(moves) + 1))
        assert journal.aliases("demo").epoch == len(moves)
        for line in said:
            kind, what, *more = line.split()
            if kind == "step":
                assert int(what) < len(steps)
            elif kind == "blob":
                journal.get(what)
            elif kind == "candidate":
                assert journal.get_candidate(what).id == what
            else:
                assert moves[int(what)].names["live"] == more[0]


def test_kill_nine_at_any_moment_loses_nothing_acknowledged(tmp_path: Path) -> None:
    rng = random.Random(20)
    said: list[str] = []
    for _ in range(ROUNDS):
        child = Child(lambda say: controller(tmp_path, say))
        time.sleep(rng.uniform(0.005, 0.12))
        child.kill()
        status, lines = child.end()
        assert status == -signal.SIGKILL
        said += lines
        acknowledged_are_there(tmp_path, said)
    assert sum(line.startswith("move") for line in said) > ROUNDS, "killed too early to mean much"


def test_kill_nine_while_a_journal_is_made(tmp_path: Path) -> None:
    rng = random.Random(21)
    for n in range(12):
        child = Child(lambda say, n=n: controller(tmp_path / str(n), say))  # type: ignore[misc]
        time.sleep(rng.uniform(0.0, 0.025))
        child.kill()
        acknowledged_are_there(tmp_path / str(n), child.end()[1])


def test_a_killed_process_lets_go_of_its_lock(tmp_path: Path) -> None:
    def hold(say: Say) -> None:
        with Journal.open(tmp_path) as journal, journal.lock("demo"):
            say("held")
            signal.pause()

    child = Child(hold)
    child.wait_for("held")
    with Journal.open(tmp_path) as journal:
        with (
            pytest.raises(StropError, match=rf"another strop \(pid {child.pid}\) is optimising"),
            journal.lock("demo"),
        ):
            pytest.fail("two hold the lock")
        child.kill()
        assert child.end()[0] == -signal.SIGKILL
        with journal.lock("demo"):
            pass


def test_first_openings_by_many_processes_at_once(tmp_path: Path) -> None:
    for n in range(4):
        root = tmp_path / str(n)
        gate = time.monotonic() + 0.05

        def work(_: Say, root: Path = root, gate: float = gate) -> None:
            time.sleep(max(0.0, gate - time.monotonic()))
            with Journal.open(root) as journal:
                for _ in range(5):
                    journal.append("x", {})
                journal.append("y", {}, key="one", once=True)

        children = [Child(work) for _ in range(6)]
        assert [child.end() for child in children] == [(0, [])] * 6
        with Journal.open(root) as journal:
            assert len(journal.events(kind="x")) == 30
            assert len(journal.events(kind="y")) == 1
            assert journal.check() == []


def test_of_two_promotions_at_once_one_wins(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        rivals = [version(journal, "a"), version(journal, "b")]
    for epoch in range(6):
        gate = time.monotonic() + 0.03

        def promote(say: Say, mine: Version, gate: float = gate, epoch: int = epoch) -> None:
            with Journal.open(tmp_path) as journal:
                time.sleep(max(0.0, gate - time.monotonic()))
                try:
                    Registry(journal).promote("demo", mine.id, expect_epoch=epoch)
                    say(f"won {mine.id}")
                except StaleEpoch:
                    say("stale")

        children = [Child(lambda say, mine=mine: promote(say, mine)) for mine in rivals]  # type: ignore[misc]
        ends = [child.end() for child in children]
        assert [status for status, _ in ends] == [0, 0]
        words = sorted(line for _, lines in ends for line in lines)
        assert words[0] == "stale"
        assert len(words) == 2
        with Journal.open(tmp_path) as journal:
            live = Registry(journal).live("demo")
            assert live is not None
            assert words[1] == f"won {live.id}"
            assert journal.aliases("demo").epoch == epoch + 1
    with Journal.open(tmp_path) as journal:
        assert journal.check() == []


def test_a_controller_that_slept_is_refused(tmp_path: Path) -> None:
    """It decided at an epoch, was stopped, and wakes up after somebody else moved on."""
    with Journal.open(tmp_path) as journal:
        a, b = version(journal, "a"), version(journal, "b")
        registry = Registry(journal)
        registry.promote("demo", a.id)

        def sleeper(say: Say) -> None:
            with Journal.open(tmp_path) as own:
                epoch = own.aliases("demo").epoch
                say("decided")
                os.kill(os.getpid(), signal.SIGSTOP)
                try:
                    Registry(own).promote("demo", b.id, expect_epoch=epoch)
                    say("promoted")
                except StaleEpoch:
                    say("stale")

        child = Child(sleeper)
        child.wait_for("decided")
        os.waitpid(child.pid, os.WUNTRACED)
        assert registry.rollback("demo") is None
        os.kill(child.pid, signal.SIGCONT)
        assert child.end() == (0, ["decided", "stale"])
        assert registry.live("demo") is None
        assert registry.journal.aliases("demo").epoch == 2


@pytest.mark.parametrize("harm", ["torn", "flipped"])
def test_a_damaged_blob_neither_goes_live_nor_stays_unseen(tmp_path: Path, harm: str) -> None:
    with Journal.open(tmp_path) as journal:
        a, b = version(journal, "a" * 50), version(journal, "b" * 50)
        registry = Registry(journal)
        registry.promote("demo", a.id)
        (digest,) = (d for d in journal.blobs.digests() if b"bbbb" in journal.get(d))
        path = journal.blobs.path(digest)
        rng, data = random.Random(3), path.read_bytes()
        for _ in range(20):
            at = rng.randrange(len(data))
            flipped = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
            path.write_bytes(data[:at] if harm == "torn" else flipped)
            with pytest.raises(StropError, match=f"blob {digest} is damaged"):
                registry.promote("demo", b.id)
            assert any(digest in line for line in journal.check())
        assert registry.live("demo") == a
        journal.put_candidate(candidate("b" * 50))
        assert journal.check() == []
        registry.promote("demo", b.id)
        assert registry.live("demo") == b


def fill(root: Path, say: Say, make_room: Callable[[], None]) -> None:
    """Record, then store, until the disk refuses; say what was accepted."""
    with Journal.open(root) as journal:
        for kind, work in (("step", _step), ("blob", _blob)):
            try:
                for n in range(10_000):
                    say(f"{kind} {work(journal, n)}")
            except StropError as refused:
                say(f"refused {refused}")
            assert len(journal.events(kind="step")) > 0  # reading goes on
            make_room()


def _step(journal: Journal, n: int) -> str:
    journal.append("step", {"n": n, "text": "x" * 5000}, run="r", key=str(n))
    return str(n)


def _blob(journal: Journal, n: int) -> str:
    return journal.put(random.Random(n).randbytes(4000 * (n + 1)))


def all_accepted_are_there(root: Path, lines: list[str]) -> None:
    refused = [line for line in lines if line.startswith("refused")]
    assert len(refused) == 2
    assert all("disk is full" in line and "safe" in line for line in refused), refused
    accepted = [line.split() for line in lines if not line.startswith("refused")]
    steps = [what for kind, what in accepted if kind == "step"]
    blobs = [what for kind, what in accepted if kind == "blob"]
    assert len(steps) > 5
    assert len(blobs) > 5
    with Journal.open(root) as journal:
        assert journal.check() == []
        assert [event.key for event in journal.events(kind="step")] == steps
        assert journal.blobs.digests() == sorted(blobs)
        journal.append("after", {})
        assert len(journal.events(kind="after")) == 1


def test_a_full_disk_loses_nothing_and_goes_on_when_there_is_space(small_disk: Path) -> None:
    fillers = [small_disk / "filler 1", small_disk / "filler 2"]
    for filler in fillers:
        filler.write_bytes(b"\0" * 200_000)
    child = Child(lambda say: fill(small_disk / "home", say, lambda: fillers.pop().unlink()))
    status, lines = child.end()
    assert status == 0
    all_accepted_are_there(small_disk / "home", lines)


def test_a_quota_on_files_loses_nothing(tmp_path: Path) -> None:
    def limited(say: Say) -> None:
        Journal.open(tmp_path).close()
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        fill(tmp_path, say, lambda: None)

    status, lines = Child(limited).end()
    assert status == 0
    all_accepted_are_there(tmp_path, lines)
