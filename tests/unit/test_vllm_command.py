"""Launch commands as users write them, read as vLLM reads them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from strop.core import StropError
from strop.engine.vllm.command import Served, parse


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with a vllm and a Python that print their arguments, one a line."""
    for name in ("vllm", "python", "python3.11"):
        program = tmp_path / name
        program.write_text('#!/bin/sh\necho "$0"; for word; do echo "$word"; done; echo "A=$A"\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name in ("VLLM_API_KEY", "VLLM_USE_RUST_FRONTEND"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def read(text: str) -> Served:
    return parse(text.split())


def test_the_defaults_are_those_of_vllm() -> None:
    served = read("vllm serve org/model")
    assert served.command == ("vllm", "serve", "org/model")
    assert (served.model, served.served_name) == ("org/model", "org/model")
    assert (served.host, served.port, served.url) == ("", 8000, "http://127.0.0.1:8000")
    assert (served.tensor_parallel, served.pipeline_parallel) == (1, 1)
    assert (served.api_key, served.worker_extension, served.uds, served.tls) == ("", "", "", False)


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve m",
        "vllm serve --model m",
        "vllm serve --enforce-eager --model=m",
        "python -m vllm.entrypoints.cli.main serve m",
        "python3.11 -u -X dev -m vllm.entrypoints.cli.main serve m",
        "python -m vllm.entrypoints.openai.api_server --model m",
        "python -m vllm.entrypoints.openai.api_server --port 8000 --model=m",
        "python bin/vllm serve m",
    ],
)
def test_every_way_to_launch(text: str) -> None:
    served = read(text)
    assert (served.model, served.port, served.command) == ("m", 8000, tuple(text.split()))


def test_a_full_path(programs: Path) -> None:
    assert read(f"{programs}/vllm serve m").command[0] == f"{programs}/vllm"


@pytest.mark.parametrize(
    "flags",
    [
        "--tensor-parallel-size 2 --served-model-name short --host 10.0.0.5 --port 9000",
        "--tensor_parallel_size=2 --served_model_name=short --host=10.0.0.5 --port=9000",
        "-tp 2 --served-model-name short other --host 10.0.0.5 --port 9000",
        "-tp=2 --served-model short --host 10.0.0.5 --port 1 --port 9000",
    ],
)
def test_every_way_to_write_a_flag(flags: str) -> None:
    served = read(f"vllm serve m {flags} --max-model-len 4096 -O3 --compilation-config.mode 3")
    assert (served.tensor_parallel, served.served_name) == (2, "short")
    assert (served.url, served.model) == ("http://10.0.0.5:9000", "m")


def test_the_address() -> None:
    assert read("vllm serve m --host :: --port 81 --ssl-certfile c").url == "https://[::1]:81"
    assert read("vllm serve m --host fe80::1 --root-path /x/").url == "http://[fe80::1]:8000/x"
    assert read("vllm serve m --uds /run/vllm").uds == "/run/vllm"


def test_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "outside")
    assert read("vllm serve m").api_key == "outside"
    assert read("VLLM_API_KEY=inside vllm serve m").api_key == "inside"
    assert read("VLLM_API_KEY=inside vllm serve m --api-key first second").api_key == "first"


def test_the_launch_adds_both_classes_and_keeps_the_users_middleware() -> None:
    served = read("vllm serve m --middleware my.Own --api-key a b")
    added = ["--worker-extension-cls", "x.Ours", "--middleware", "y.Ours"]
    assert served.launch("x.Ours", "y.Ours") == [*served.command, *added]
    assert served.environment("t", "r.jsonl") == {
        "STROP_TOKEN": "t",
        "STROP_RECORDS": "r.jsonl",
        "STROP_USER_EXTENSION": "",
    }


@pytest.mark.parametrize(
    "flag",
    ["--worker-extension-cls my.Ext", "--worker_extension_cls=my.Ext", "--worker-ext my.Ext"],
)
def test_the_users_extension_goes_to_the_environment(flag: str) -> None:
    served = read(f"vllm serve m {flag} --port 81")
    launched = served.launch("x.Ours", "y.Ours")
    assert launched[:5] == ["vllm", "serve", "m", "--port", "81"]
    assert launched[5:] == ["--worker-extension-cls", "x.Ours", "--middleware", "y.Ours"]
    assert served.environment("t", "")["STROP_USER_EXTENSION"] == "my.Ext"


@pytest.mark.parametrize("front", ["A=1", "env A=1", "/usr/bin/env A=1"])
def test_assignments_in_front_make_a_command_that_can_be_run(front: str, programs: Path) -> None:
    launched = read(f"{front} vllm serve m").launch("x.Ours", "y.Ours")
    done = subprocess.run(launched, capture_output=True, text=True, check=True)
    said = done.stdout.split()
    assert said[:3] == [f"{programs}/vllm", "serve", "m"]
    assert said[-3:] == ["--middleware", "y.Ours", "A=1"]


def test_an_assigned_path_is_searched(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert read(f"PATH={programs} vllm serve m").model == "m"
    with pytest.raises(StropError, match="vllm: no such command"):
        read("vllm serve m")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no launch command"),
        ("A=1", "no launch command"),
        ("env -i vllm serve m", "-i: options of env"),
        ("vllm", "does not launch"),
        ("vllm bench m", "does not launch"),
        ("python train.py", "does not launch"),
        ("python -m", "does not launch"),
        ("python -m other serve m", "does not launch"),
        ("/nowhere/vllm serve m", "/nowhere/vllm: no such command"),
        ("vllm serve", "names no model"),
        ("vllm serve --port 80", "names no model"),
        ("python -m vllm.entrypoints.openai.api_server", "names no model"),
        ("vllm serve m --port", "--port: a value is missing"),
        ("vllm serve m --host --port 80", "--host: a value is missing"),
        ("vllm serve m --port http", "--port http: a whole number"),
        ("vllm serve m --port 70000", "to 65535"),
        ("vllm serve m -tp 0", "--tensor-parallel-size 0: a whole number"),
        ("vllm serve m --headless", "--headless is not supported"),
        ("vllm serve m --grpc", "--grpc is not supported"),
        ("vllm serve m --config c.yaml", "--config is not supported"),
        ("vllm serve m -dp 2", "--data-parallel-size 2: only 1"),
        ("vllm serve m --data_parallel_size=4", "--data-parallel-size 4: only 1"),
        ("vllm serve m --data-parallel-hybrid-lb", "--data-parallel-hybrid-lb: data-parallel"),
        ("vllm serve m -dpr 1", "-dpr: data-parallel"),
        ("vllm serve m --nnodes 2", "--nnodes 2: only 1"),
        ("vllm serve m -n2", "--nnodes 2: only 1"),
        ("vllm serve m -r 1", "--node-rank 1: only 0"),
        ("vllm serve m --api-server-count 2", "--api-server-count 2: only 1"),
        ("VLLM_USE_RUST_FRONTEND=1 vllm serve m", "Rust frontend takes no middleware"),
    ],
)
def test_one_line_for_everything_else(text: str, says: str) -> None:
    with pytest.raises(StropError) as raised:
        read(text)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_one_supported_value_passes() -> None:
    flags = "-dp 1 --nnodes 1 --node-rank 0 -asc 1 --no-data-parallel-hybrid-lb"
    assert read(f"VLLM_USE_RUST_FRONTEND=0 vllm serve m {flags}").model == "m"
