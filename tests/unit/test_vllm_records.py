"""Request records: the numbers of each kind of output, and a recorder that never hurts a request."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from strop.engine.vllm.records import Observation, Recorder
from strop.observe.traffic import read


@dataclass
class Sequence:
    token_ids: list[int]
    index: int = 0
    finish_reason: str | None = None


@dataclass
class Stats:
    first_token_ts: float


@dataclass
class Output:
    outputs: list[Sequence]
    finished: bool = False
    prompt_token_ids: list[int] | None = field(default_factory=lambda: [1, 2, 3, 4, 5])
    num_cached_tokens: int | None = None
    metrics: Stats | None = None


class Clock:
    """A monotonic clock that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)

    def pass_ms(self, ms: float) -> None:
        self.now_s += ms / 1e3


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.mark.parametrize("kind", ["DELTA", "CUMULATIVE"])
def test_a_stream(kind: str, clock: Clock) -> None:
    before_s = time.time()
    seen = Observation(kind)
    clock.pass_ms(30)
    seen.admitted(0.03, "v1")
    made: list[int] = []
    for ms, new in ((12, [7]), (10, [8, 9, 10]), (5, []), (6, [11])):
        clock.pass_ms(ms)
        made += new
        tokens = new if kind == "DELTA" else list(made)
        last = len(made) == 5
        sequence = Sequence(tokens, finish_reason="stop" if last else None)
        seen.see(Output([sequence], finished=last, num_cached_tokens=2))
    clock.pass_ms(1)
    row = seen.row("ok")
    assert before_s - 0.001 <= row.pop("arrival_s") <= time.time()
    assert row == {
        "isl": 5,
        "osl": 5,
        "cached_prefix": 2,
        "duration_s": 0.064,
        "ttft_ms": 42.0,
        "itl_ms": [10.0, 0.0, 0.0, 11.0],
        "status": "ok",
        "version": ["v1"],
        "held_ms": 30.0,
    }
    assert seen.finish == "ok"


def test_sequences_in_parallel_are_told_apart(clock: Clock) -> None:
    seen = Observation("DELTA")
    for ms, index in ((10, 1), (3, 0), (4, 1), (5, 0)):
        clock.pass_ms(ms)
        seen.see(Output([Sequence([9], index)]))
    row = seen.row("ok")
    assert (row["isl"], row["osl"], row["ttft_ms"], row["itl_ms"]) == (5, 4, 10.0, [7.0, 9.0])


@pytest.mark.parametrize(("first_ms", "ttft_ms"), [(40, 40.0), (-1, None), (101, None), (None, None)])
def test_one_output_at_the_end_goes_by_the_engines_clock(
    first_ms: float | None, ttft_ms: float | None, clock: Clock
) -> None:
    seen = Observation("FINAL_ONLY")
    metrics = None if first_ms is None else Stats(clock.now_s + first_ms / 1e3)
    clock.pass_ms(100)
    seen.see(Output([Sequence([1, 2, 3], finish_reason="length")], finished=True, metrics=metrics))
    row = seen.row("ok")
    assert (row["osl"], row["ttft_ms"], row["itl_ms"], row["duration_s"]) == (3, ttft_ms, [], 0.1)


def test_a_request_that_never_passed_the_door(clock: Clock) -> None:
    seen = Observation("DELTA")
    clock.pass_ms(250)
    row = seen.row("aborted")
    assert (row["isl"], row["osl"], row["version"], row["held_ms"]) == (0, 0, [], 250.0)
    assert (row["ttft_ms"], row["status"]) == (None, "aborted")


@pytest.mark.parametrize(
    ("reasons", "finish"),
    [
        (["stop", "length"], "ok"),
        (["stop", "abort"], "aborted"),
        (["abort", "error"], "error"),
    ],
)
def test_how_it_finished(reasons: list[str], finish: str) -> None:
    seen = Observation("FINAL_ONLY")
    seen.see(Output([Sequence([1], i, reason) for i, reason in enumerate(reasons)], finished=True))
    assert seen.finish == finish


def test_more_cached_than_the_prompt_is_cut() -> None:
    seen = Observation("DELTA")
    seen.see(Output([Sequence([1])], prompt_token_ids=[1, 2], num_cached_tokens=16))
    assert seen.row("ok")["cached_prefix"] == 2


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_lines_are_appended_to_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    for number in (1, 2):
        recorder = Recorder(str(path))
        assert recorder.recording
        recorder.write({"isl": number})
        recorder.close()
        recorder.write({"isl": 99})
    assert _rows(path) == [{"isl": 1}, {"isl": 2}]
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_shared_keys_are_a_trace(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "r.jsonl"
    recorder = Recorder(str(path))
    for wall_s in (1760000010.5, 1760000000.25):
        seen = Observation("DELTA")
        seen.arrival_s = wall_s
        clock.pass_ms(20)
        seen.see(Output([Sequence([1, 2])], finished=True, num_cached_tokens=3))
        recorder.write(seen.row("ok"))
    kept = ("arrival_s", "isl", "osl", "cached_prefix", "duration_s")
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps({k: row[k] for k in kept}) + "\n" for row in _rows(path)))
    found = read(trace)
    assert found.format == "strop"
    assert [(r.arrival_s, r.isl, r.osl, r.cached_prefix, r.duration_s) for r in found.requests] == [
        (0.0, 5, 2, 3, 0.02),
        (10.25, 5, 2, 3, 0.02),
    ]


def test_an_empty_path_records_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder("")
    recorder.write({"isl": 1})
    assert not recorder.recording
    assert capfd.readouterr().err == ""


def test_a_path_that_cannot_be_opened_is_said_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder(str(tmp_path / "none" / "r.jsonl"))
    recorder.write({"isl": 1})
    recorder.write({"isl": 2})
    assert not recorder.recording
    (line,) = capfd.readouterr().err.splitlines()
    assert "r.jsonl: requests are no longer recorded" in line


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_is_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder("/dev/full")
    assert recorder.recording
    recorder.write({"isl": 1})
    recorder.write({"isl": 2})
    assert not recorder.recording
    assert len(capfd.readouterr().err.splitlines()) == 1


def test_a_line_that_was_cut_short_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.jsonl"
    recorder = Recorder(str(path))
    recorder.write({"isl": 1})
    whole = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: whole(fd, data[:4]))
    recorder.write({"isl": 2})
    monkeypatch.undo()
    assert not recorder.recording
    assert _rows(path) == [{"isl": 1}]
