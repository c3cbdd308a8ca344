"""`strop verify`: the judge alone, as someone else's CI would call it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conformance.test_cli import GOOD, home, refused, strop, write
from tests.support.candidates import TOY

__all__ = ["home"]


def folder(path: Path, name: str) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for file, text in TOY[name].files.items():
        (path / file).write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def deployed(tmp_path: Path) -> Path:
    path = write(tmp_path, rows=GOOD * 8)
    policy = "[policy]\npositions = 400\npairs_final = 24\nrepeats = 8\ndecode_steps = 3\n"
    path.write_text(path.read_text(encoding="utf-8") + policy, encoding="utf-8")
    return path


def test_a_faster_candidate_passes_with_every_check_in_sight(tmp_path: Path, deployed: Path) -> None:
    result = strop("verify", str(folder(tmp_path / "fast", "fast")), str(deployed), "--trust", home=tmp_path)
    assert result.returncode == 0, result.stderr
    for name in ("isolation", "admission", "build", "error", "speed", "timed_outputs", "restore"):
        assert f"ok  {name}" in result.stderr
    assert result.stdout.startswith("judged: ")
    assert "held out: " in result.stdout


def test_a_wrong_one_is_refused_by_name(tmp_path: Path, deployed: Path) -> None:
    place = folder(tmp_path / "wrong", "zero_layer")
    result = strop("verify", str(place), str(deployed), "--trust", "--json", home=tmp_path)
    assert result.returncode == 1
    found = json.loads(result.stdout)
    assert (found["status"], found["reason"]) == ("failed", "numerics")
    last = found["verdicts"][0]["checks"][-1]
    assert (last["name"], last["passed"]) == ("error", False)
    assert not (tmp_path / "journal.db").exists(), "verify records nothing"


def test_a_file_will_do_and_quick_leaves_out_the_final_judgement(tmp_path: Path, deployed: Path) -> None:
    place = folder(tmp_path / "fast", "fast") / "forward.py"
    result = strop("verify", str(place), str(deployed), "--trust", "--quick", "--json", home=tmp_path)
    assert result.returncode == 0, result.stdout
    assert len(json.loads(result.stdout)["verdicts"]) == 1


def test_bad_input_is_one_line(tmp_path: Path, deployed: Path) -> None:
    assert "no such folder or file" in refused(strop("verify", "nothing", str(deployed), home=tmp_path))
    (tmp_path / "empty").mkdir()
    empty = strop("verify", str(tmp_path / "empty"), str(deployed), home=tmp_path)
    assert "forward.py" in refused(empty)
    (tmp_path / "binary.py").write_bytes(bytes([255, 254, 0]))
    binary = strop("verify", str(tmp_path / "binary.py"), str(deployed), home=tmp_path)
    assert "not UTF-8" in refused(binary)


def test_the_id_of_a_judged_candidate_will_do(home: Path, tmp_path: Path, deployed: Path) -> None:
    id = TOY["nan"].id
    result = strop("verify", id[:10], str(deployed), "--home", str(home), "--trust", "--json", home=tmp_path)
    assert result.returncode == 1
    assert json.loads(result.stdout)["candidate"] == id
