"""Trace readers: right values from real samples, one clear line for anything else."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strop.core import StropError
from strop.observe.records import Request, Trace
from strop.observe.summary import summary
from strop.observe.traffic import FORMATS, read

DATA = Path(__file__).parents[1] / "data"
AZURE = Path(__file__).parents[2] / "examples" / "azure_conv_slice.csv"
HEADER = b"TIMESTAMP,ContextTokens,GeneratedTokens\n"


def _write(folder: Path, content: bytes | list[dict[str, Any]], name: str = "trace") -> Path:
    path = folder / name
    if isinstance(content, list):
        content = "".join(json.dumps(row) + "\n" for row in content).encode()
    path.write_bytes(content)
    return path


def _session(name: str, requests: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": name, "block_size": 64, "requests": requests}


def _call(t: float, isl: int, osl: int, runs: list[list[int]], **more: Any) -> dict[str, Any]:
    return {"t": t, "type": "n", "in": isl, "out": osl, "hash_runs": runs, **more}


def test_azure_slice() -> None:
    trace = read(AZURE)
    assert (trace.format, len(trace.requests), trace.left_out) == ("azure", 2000, 0)
    assert trace.requests[0] == Request(0.0, 374, 44)
    assert trace.requests[1].arrival_s == pytest.approx(4.314579, abs=1e-6)
    assert (trace.requests[1].isl, trace.requests[1].osl) == (396, 109)


def test_azure_columns_by_name_and_time_zones(tmp_path: Path) -> None:
    path = _write(
        tmp_path,
        b'\xef\xbb\xbf"GeneratedTokens",extra,ContextTokens,TIMESTAMP\r\n\r\n'
        b"5,x,10,2024-05-10 00:00:01.500000+00:00\r\n"
        b"6,x,20,2024-05-10 00:00:00\r\n",
    )
    assert read(path).requests == (Request(0.0, 20, 6), Request(1.5, 10, 5))


def test_mooncake_slice_prefix_against_the_slow_way() -> None:
    path = DATA / "mooncake_slice.jsonl"
    trace = read(path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert (trace.format, len(trace.requests)) == ("mooncake", len(rows))
    earlier: list[list[int]] = []
    for row, request in zip(rows, trace.requests, strict=True):
        ids = row["hash_ids"]
        shared = max((n for n in range(len(ids) + 1) for e in earlier if e[:n] == ids[:n]), default=0)
        assert request.cached_prefix == min(512 * shared, row["input_length"])
        assert request.isl == row["input_length"]
        assert request.osl == row["output_length"]
        earlier.append(ids)
    assert max(r.cached_prefix for r in trace.requests) > 512


def test_mooncake_prefix_is_no_longer_than_the_input(tmp_path: Path) -> None:
    row = {"timestamp": 1500, "input_length": 700, "output_length": 3, "hash_ids": [4, 9]}
    later = {**row, "timestamp": 2500.0, "hash_ids": [4, 11]}
    bare = {"timestamp": 3500, "input_length": 1, "output_length": 1}
    trace = read(_write(tmp_path, [row, row, later, bare]))
    assert [r.cached_prefix for r in trace.requests] == [0, 700, 512, 0]
    assert [r.arrival_s for r in trace.requests] == [0.0, 0.0, 1.0, 2.0]


def test_weka_slice() -> None:
    trace = read(DATA / "weka_slice.jsonl.gz")
    with gzip.open(DATA / "weka_slice.jsonl.gz", "rt") as file:
        sessions = [json.loads(line) for line in file]
    assert trace.format == "weka"
    assert trace.per_session
    assert trace.dropped["repeated sessions"] == 1
    kept = {s["id"]: s for s in sessions if s["id"] != "trace_0427"}
    assert {r.session for r in trace.requests} == set(kept)
    flat = [call for s in kept.values() for entry in s["requests"] for call in entry.get("requests", [entry])]
    answered = [call for call in flat if call["out"] > 0]
    assert trace.dropped["requests without output"] == len(flat) - len(answered) > 0
    assert len(trace.requests) == len(answered)
    assert sum(r.isl for r in trace.requests) == sum(c["in"] for c in answered)


def test_weka_prefix_against_the_slow_way() -> None:
    trace = read(DATA / "weka_slice.jsonl.gz")
    with gzip.open(DATA / "weka_slice.jsonl.gz", "rt") as file:
        session = next(s for s in map(json.loads, file) if s["id"] == "trace_0403")
    got = [r.cached_prefix for r in trace.requests if r.session == "trace_0403"]
    seen: set[int] = set()
    expected = []
    for call in session["requests"]:
        ids = [first + i for first, count in call["hash_runs"] for i in range(count)]
        known = next((n for n, block in enumerate(ids) if block not in seen), len(ids))
        expected.append(min(known * 64, call["in"]))
        seen.update(ids)
    assert got == expected


def test_weka_subagent_runs_on_its_parents_clock(tmp_path: Path) -> None:
    sub = {"t": 5.0, "type": "subagent", "agent_id": "a", "requests": [
        _call(0.0, 128, 2, [[7, 2]], api_time=1.5), _call(6.0, 130, 3, [[7, 2]])]}  # fmt: skip
    parent = [_call(0.0, 64, 1, [[1, 1]]), sub, _call(8.0, 192, 4, [[1, 1], [3, 2]])]
    trace = read(_write(tmp_path, [_session("s", parent)]))
    assert trace.requests == (
        Request(0.0, 64, 1, 0, "s"),
        Request(5.0, 128, 2, 0, "s", 1.5),
        Request(8.0, 192, 4, 64, "s"),
        Request(11.0, 130, 3, 128, "s"),
    )


def test_strop_format_sorted_from_zero_and_gzipped(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"arrival_s": 1764547202.5, "isl": 9, "osl": 1, "cached_prefix": 9, "session": "a"},
        {"arrival_s": 1764547200, "isl": 5, "osl": 2, "duration_s": 0.25},
    ]
    plain = _write(tmp_path, rows)
    zipped = _write(tmp_path, gzip.compress(plain.read_bytes()), "no_suffix")
    expected = (Request(0.0, 5, 2, 0, "", 0.25), Request(2.5, 9, 1, 9, "a"))
    assert read(plain).requests == read(zipped).requests == expected
    assert read(zipped).format == "strop"


def test_limit_counts_before_lengths_do(tmp_path: Path) -> None:
    rows = [{"arrival_s": i, "isl": n, "osl": 10 * n} for i, n in enumerate((1, 5, 2, 1))]
    path = _write(tmp_path, rows)
    trace = read(path, limit=3, max_isl=4, max_osl=15)
    assert [r.isl for r in trace.requests] == [1]
    assert trace.left_out == 2
    assert len(read(path, max_isl=5, max_osl=50).requests) == 4
    with pytest.raises(StropError, match=r"all 4 requests .* input has 1 tokens, .* output 10$"):
        read(path, max_osl=9)


def test_limit_reads_no_further(tmp_path: Path) -> None:
    path = _write(tmp_path, b'{"arrival_s":0,"isl":1,"osl":1}\nbroken\n')
    assert len(read(path, limit=1).requests) == 1


STROP = b'{"arrival_s":0,"isl":4,"osl":1}\n'
MOON = b'{"timestamp":0,"input_length":4,"output_length":1,"hash_ids":[1]}\n'
WEKA = json.dumps(_session("s", [_call(0, 64, 1, [[1, 1]])])).encode() + b"\n"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "empty"),
        (b"\n \r\n", "empty"),
        (b"\x00\x01\x02\xff\xfe", ":1: no known trace format"),
        (b"hello,world\n1,2\n", ":1: no known trace format"),
        (b'{"a":1}\n', ":1: no known trace format"),
        (b"[1,2]\n", ":1: no known trace format"),
        (b"[" * 100_000, ":1: no known trace format"),
        (HEADER, "no requests"),
        (HEADER + b"2023-11-16 18:15:46,1\n", ":2: expected 3 cells"),
        (HEADER + b"2023-11-16 18:15:46,1,2\nnoon,1,2\n", ":3: TIMESTAMP"),
        (HEADER + b"2023-11-16 18:15:46,0,2\n", ":2: ContextTokens"),
        (HEADER + b"2023-11-16 18:15:46,1,-2\n", ":2: GeneratedTokens"),
        (HEADER + b"2023-11-16 18:15:46,1,2.5\n", ":2: GeneratedTokens"),
        (HEADER + "2023-11-16 18:15:46,\u0661,2\n".encode(), ":2: ContextTokens"),
        (HEADER + b"2023-11-16 18:15:46," + b"9" * 5000 + b",2\n", ":2: ContextTokens"),
        (HEADER + b"0001-01-01 00:00:00+23:59,1,2\n\xff\xff,1,2\n", ":3: TIMESTAMP"),
        (STROP + b"{\n", ":2: .*expected"),
        (STROP + STROP[:-5] + b"\n", ":2: "),
        (STROP + b'{"arrival_s":0,"isl":0,"osl":1}\n', r":2: .*isl"),
        (STROP + b'{"arrival_s":0,"isl":1,"osl":-1}\n', r":2: .*osl"),
        (STROP + b'{"arrival_s":-1,"isl":1,"osl":1}\n', r":2: .*arrival_s"),
        (STROP + b'{"arrival_s":0,"isl":1.5,"osl":1}\n', r":2: .*isl"),
        (STROP + b'{"arrival_s":0,"isl":true,"osl":1}\n', r":2: .*isl"),
        (STROP + b'{"arrival_s":NaN,"isl":1,"osl":1}\n', ":2: "),
        (STROP + b'{"arrival_s":0,"isl":1,"osl":1,"x":1}\n', ":2: .*`x`"),
        (STROP + b'{"arrival_s":0,"isl":1,"osl":1,"cached_prefix":2}\n', ":2: cached_prefix"),
        (b'{"isl":1,"osl":1}\n', ":1: .*arrival_s"),
        (MOON + b'{"timestamp":0,"input_length":0,"output_length":1}\n', ":2: .*input_length"),
        (MOON + b'{"timestamp":0,"input_length":1}\n', ":2: .*output_length"),
        (MOON + b'{"timestamp":0,"input_length":1,"output_length":1,"hash_ids":["a"]}', ":2: "),
        (WEKA.replace(b'"in": 64', b'"in": 0'), r":1: .*\$\.requests"),
        (WEKA.replace(b'"t": 0', b'"t": -3'), r":1: .*\$\.requests"),
        (WEKA.replace(b"[[1, 1]]", b"[[1, 3]]"), ":1: hash_runs: 3 blocks"),
        (WEKA.replace(b"[[1, 1]]", b"[[1, 99999999999]]"), ":1: "),
        (WEKA.replace(b'"n"', b'"z"'), ":1: "),
        (WEKA.replace(b'"out": 1', b'"out": 0'), "no requests"),
        (gzip.compress(STROP * 50)[:-9], "damaged gzip"),
        (b"\x1f\x8b\x08garbage", "damaged gzip"),
    ],
)
def test_bad_content_is_one_clear_line(tmp_path: Path, content: bytes, expected: str) -> None:
    path = _write(tmp_path, content)
    with pytest.raises(StropError, match=expected) as raised:
        read(path)
    message = str(raised.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    assert len(message) < len(str(path)) + 500


def test_bad_places_and_formats(tmp_path: Path) -> None:
    with pytest.raises(StropError, match="no such trace file"):
        read(tmp_path / "none.csv")
    with pytest.raises(StropError, match=r"folder; `traffic\.trace`"):
        read(tmp_path)
    with pytest.raises(StropError, match="one of auto, azure, mooncake, weka, strop"):
        read(AZURE, "parquet")


@pytest.mark.parametrize("format", FORMATS[1:])
def test_a_wrong_format_is_named_at_the_first_line(tmp_path: Path, format: str) -> None:
    path = _write(tmp_path, b'{"other": "thing"}\n')
    with pytest.raises(StropError, match=r":1: .*expected"):
        read(path, format)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
_near = st.fixed_dictionaries(
    {},
    optional={
        key: _json | st.integers(-2, 600)
        for key in ("arrival_s", "isl", "osl", "timestamp", "input_length", "output_length",
                    "hash_ids", "id", "block_size", "requests")
    },
).map(lambda row: json.dumps(row).encode())  # fmt: skip
_cells = st.lists(st.text(max_size=12) | st.integers().map(str), max_size=4).map(
    lambda cells: ",".join(cells).encode("utf-8", "surrogatepass")
)
_lines = st.lists(
    st.binary(max_size=40) | _near | _cells | st.sampled_from([HEADER, STROP, MOON, WEKA]),
    max_size=5,
).map(b"\n".join)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=_lines | _lines.map(gzip.compress), format=st.sampled_from(FORMATS))
def test_junk_raises_nothing_but_strop_errors(tmp_path: Path, content: bytes, format: str) -> None:
    path = _write(tmp_path, content)
    try:
        trace = read(path, format)
    except StropError as error:
        message = str(error)
    else:
        message = str(path)
        assert trace.requests
        assert all(r.isl > 0 and r.osl > 0 and r.arrival_s >= 0 for r in trace.requests)
        assert all(0 <= r.cached_prefix <= r.isl for r in trace.requests)
    assert message.startswith(str(path))
    assert "\n" not in message


_request = st.builds(
    lambda t, isl, osl, share: Request(t, isl, osl, int(isl * share)),
    st.floats(0, 1e6), st.integers(1, 10**6), st.integers(1, 10**6), st.floats(0, 1),
)  # fmt: skip


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests=st.lists(_request, min_size=1, max_size=20))
def test_strop_format_round_trip(tmp_path: Path, requests: list[Request]) -> None:
    rows = [
        {"arrival_s": r.arrival_s, "isl": r.isl, "osl": r.osl, "cached_prefix": r.cached_prefix}
        for r in requests
    ]
    trace = read(_write(tmp_path, rows))
    start = min(r.arrival_s for r in requests)
    expected = sorted((r.arrival_s - start, r.isl, r.osl, r.cached_prefix) for r in requests)
    assert expected == sorted((r.arrival_s, r.isl, r.osl, r.cached_prefix) for r in trace.requests)
    assert [r.arrival_s for r in trace.requests] == sorted(r.arrival_s for r in trace.requests)


def _trace(*requests: Request, per_session: bool = False) -> Trace:
    return Trace(Path("t"), "strop", requests, per_session=per_session)


def test_summary_of_known_durations() -> None:
    # In flight at each arrival: 1, 2, 3 (the first still runs), then 1.
    got = summary(
        _trace(
            Request(0.0, 100, 10, 0, "", 10.0),
            Request(1.0, 200, 20, 100, "", 5.0),
            Request(3.0, 300, 30, 200, "", 1.0),
            Request(20.0, 400, 40, 0, "", 1.0),
        )
    )
    assert got.requests == 4
    assert got.span_s == 20.0
    assert got.isl.p50 == 250.0
    assert (got.osl.mean, got.osl.max) == (25.0, 40.0)
    assert got.interarrival_s is not None
    assert (got.interarrival_s.p50, got.interarrival_s.max) == (2.0, 17.0)
    assert (got.concurrency.mean, got.concurrency.max) == (7 / 4, 3.0)
    assert not got.concurrency_estimated
    assert got.cached_share == 0.3


def test_summary_says_what_it_assumed() -> None:
    trace = _trace(Request(0.0, 1, 100), Request(1.5, 1, 1), Request(2.5, 1, 1, 0, "", 1.0))
    got = summary(trace, tok_s=50.0)
    assert got.concurrency.max == 2.0
    assert got.concurrency_estimated
    assert "estimate: 50 output tok/s assumed for 2 of 3 requests" in got.concurrency_note
    assert summary(trace, tok_s=10.0).concurrency.max == 2.0
    assert summary(trace, tok_s=10.0).concurrency.mean > got.concurrency.mean


def test_summary_keeps_session_clocks_apart() -> None:
    one = [Request(t, 10, 1, 0, "a", 100.0) for t in (0.0, 1.0)]
    two = [Request(t, 10, 1, 0, "b", 100.0) for t in (0.0, 50.0)]
    got = summary(_trace(*one, *two, per_session=True))
    assert got.sessions == 2
    assert got.span_s == 50.0
    assert got.concurrency.max == 2.0
    assert got.interarrival_s is not None
    assert sorted((got.interarrival_s.p50, got.interarrival_s.max)) == [25.5, 50.0]
    assert "within one session" in got.concurrency_note
    joint = summary(_trace(*one, *two))
    assert joint.concurrency.max == 4.0


def test_summary_edges() -> None:
    got = summary(_trace(Request(0.0, 7, 3)))
    assert got.interarrival_s is None
    assert got.concurrency.max == got.concurrency.p10 == 1.0
    assert got.span_s == 0.0
    with pytest.raises(StropError, match="no requests"):
        summary(_trace())
    with pytest.raises(StropError, match="rate above 0"):
        summary(_trace(Request(0.0, 7, 3)), tok_s=0.0)
