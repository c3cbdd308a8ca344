"""kill -9 of the whole controller, at any moment: the same command goes on, nothing is doubled."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from strop.core import Reason, Status
from strop.journal import Journal
from strop.run import Run
from tests.support.loops import deployment

NAMES = "nan,same,wrong_shape,fast,zero_layer"
ROUNDS = 5


def start(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.loops", str(folder), NAMES]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(folder: Path) -> None:
    out, err = (controller := start(folder)).communicate(timeout=60)
    assert controller.returncode == 0, err
    assert "confirmed" in out


def strays(folder: Path) -> list[str]:
    """Processes that still belong to a controller of this folder's test."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().decode()
            except OSError:
                continue
            if "strop.engine.owner" in command and "toy" in command:
                found.append(command)
    return found


def test_a_killed_controller_is_resumed_without_loss_or_double(tmp_path: Path) -> None:
    rng = random.Random(os.environ.get("STROP_TEST_SEED", "controller"))
    for number in range(ROUNDS):
        folder = tmp_path / str(number)
        folder.mkdir()
        deployment(folder)
        known: set[str] = set()
        for _ in range(2):
            controller = start(folder)
            time.sleep(rng.uniform(0.3, 3.0))
            controller.send_signal(signal.SIGKILL)
            controller.communicate()
            known |= verdicts(folder)
        finish(folder)
        check(folder, known)
    deadline = time.monotonic() + 5
    while strays(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert strays(tmp_path) == []


def verdicts(folder: Path) -> set[str]:
    """Candidates whose verdict was acknowledged."""
    if not (folder / "home" / "journal.db").exists():
        return set()
    with Journal.open(folder / "home") as journal:
        return {str(event.key) for event in journal.events(kind="judged")}


def check(folder: Path, known: set[str]) -> None:
    """An offline reading of history: one verdict a proposal, none lost, the right one live."""
    with Journal.open(folder / "home") as journal:
        run = Run.latest(journal, "toy")
        assert run is not None
        counts = Counter((e.run, e.key) for e in journal.events(kind="judged"))
        assert set(counts.values()) == {1}
        assert known <= {key for _, key in counts}
        proposed = {(e.run, e.key) for e in journal.events(kind="proposed")}
        assert proposed == set(counts)
        found = {str(t.proposal.params["name"]): t.verdict for t in run.trials()}
        if "fast" in found:
            assert found["fast"].status is Status.PASSED
        if "nan" in found:
            assert found["nan"].reason is Reason.NONFINITE
        assert journal.check() == []
        assert journal.aliases("toy").names["live"]
