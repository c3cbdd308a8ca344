"""The command line as a stranger meets it: bad input is one line and a non-zero exit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from strop.core import Interval, Measurement, Tier, TokenSource
from strop.journal import Journal
from tests.support.loops import deployment, optimize

TOY = """
name = "toy"
[engine]
model = "{model}"
kind = "toy"
[traffic]
trace = "{trace}"
tokens = "synthetic"
[search]
budget_s = 1
"""


def strop(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "import sys; from strop.cli import main; sys.exit(main())", *words]
    env = {"STROP_HOME": str(home), "PATH": "/usr/bin:/bin", "HOME": str(home)}
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=60)


def refused(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode != 0
    assert "Traceback" not in result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("strop: ")]
    assert len(lines) == 1, result.stderr
    return lines[0]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal with one finished run that shipped."""
    folder = tmp_path_factory.mktemp("home")
    assert optimize(folder, deployment(folder), ["nan", "fast"]).winner
    return folder


def write(folder: Path, model: str = "toy", trace: str = "trace.jsonl", rows: str | None = None) -> Path:
    if rows is not None:
        (folder / trace).write_text(rows, encoding="utf-8")
    path = folder / "toy.toml"
    path.write_text(TOY.format(model=model, trace=trace), encoding="utf-8")
    return path


GOOD = '{"arrival_s": 0, "isl": 8, "osl": 4}\n'


@pytest.mark.parametrize(
    ("model", "rows", "says"),
    [
        ("toy", None, "trace.jsonl"),
        ("toy", "nonsense\n", "trace.jsonl"),
        ("toy", '{"arrival_s": 0, "isl": -8, "osl": 4}\n', "trace.jsonl:1"),
        ("other", GOOD, "unknown model"),
    ],
)
def test_bad_input_to_optimize(tmp_path: Path, model: str, rows: str | None, says: str) -> None:
    path = write(tmp_path, model=model, rows=rows)
    assert says in refused(strop("optimize", str(path), home=tmp_path))


def test_a_second_process_on_the_same_deployment_is_told_who_works(tmp_path: Path) -> None:
    path = write(tmp_path, rows=GOOD)
    with Journal.open(tmp_path) as journal, journal.lock("toy"):
        line = refused(strop("optimize", str(path), home=tmp_path))
    assert "another strop" in line
    assert "pid" in line


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("optimize", "absent.toml"), "no such deployment file"),
        (("observe", "absent.csv"), "absent.csv"),
        (("history", "nobody"), "nothing is recorded"),
        (("rollback", "nobody"), "nobody"),
        (("show", "ffffffff"), "0 judged candidates"),
        (("report", "nobody"), "nothing is recorded"),
        (("frobnicate",), "frobnicate"),
    ],
)
def test_what_is_not_there_is_named(home: Path, words: tuple[str, ...], says: str) -> None:
    assert says in refused(strop(*words, home=home))


def test_no_journal_yet_is_one_line(tmp_path: Path) -> None:
    assert "run `strop optimize` first" in refused(strop("status", home=tmp_path))


def test_a_damaged_journal_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "journal.db").write_bytes(b"not a database at all" * 100)
    assert "damaged" in refused(strop("status", home=tmp_path))


def test_status_history_show_and_report_speak_json(home: Path, tmp_path: Path) -> None:
    status = json.loads(strop("status", "--json", home=home).stdout)
    (row,) = status["deployments"]
    assert (row["name"], row["trials"], row["running"]) == ("toy", 2, False)
    history = json.loads(strop("history", "toy", "--json", home=home).stdout)
    kinds = [event["kind"] for event in history["events"]]
    assert kinds[0] == "run_started"
    assert {"judged", "confirmed", "published", "alias_moved", "run_finished"} <= set(kinds)
    shown = json.loads(strop("show", row["live"][:8], "--source", "--json", home=home).stdout)
    assert "def build" in shown["files"]["forward.py"]
    out = tmp_path / "report.html"
    assert strop("report", "toy", "--out", str(out), home=home).returncode == 0
    assert "nonfinite" in out.read_text()


def test_people_can_read_status_and_doctor(home: Path) -> None:
    assert "toy" in strop("status", home=home).stdout
    assert "jail rlimits" in strop("doctor", home=home).stdout


def test_init_writes_a_file_that_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    assert strop("init", str(path), home=tmp_path).returncode == 0
    from strop import config

    assert config.load(path).engine.model == "smollm2"
    assert "is there already" in refused(strop("init", str(path), home=tmp_path))


def test_rollback_goes_to_the_baseline_and_then_has_nothing_left(home: Path) -> None:
    found = json.loads(strop("rollback", "toy", "--json", home=home).stdout)
    assert found["live"] == "baseline"
    assert "nothing to roll back" in refused(strop("rollback", "toy", home=home))


def test_numbers_in_records_survive_json() -> None:
    import msgspec

    i = Interval(1.5, 1.4, 1.6, 9)
    m = Measurement(Tier.SLOW, "v", TokenSource.REAL, i, {3: i}, 20.0, 0.1)
    assert msgspec.json.decode(msgspec.json.encode(m), type=Measurement) == m
