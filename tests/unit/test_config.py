"""A deployment file is read strictly."""

from __future__ import annotations

from pathlib import Path

import pytest

from strop import config
from strop.core import StropError, TokenSource

GOOD = """
name = "demo"
[engine]
model = "smollm2"
threads = 2
[traffic]
trace = "trace.csv"
tokens = "synthetic"
[search]
budget_s = 60
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "demo.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_deployment_is_read_with_defaults(tmp_path: Path) -> None:
    deployment = config.load(write(tmp_path, GOOD))
    assert deployment.engine.threads == 2
    assert deployment.traffic.tokens is TokenSource.SYNTHETIC
    assert deployment.search.budget_s == 60.0
    assert deployment.policy.alpha == 0.05


def test_files_are_found_beside_the_toml(tmp_path: Path) -> None:
    assert config.load(write(tmp_path, GOOD)).traffic.trace == str(tmp_path / "trace.csv")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name = 'x'", "missing key: engine"),
        ("nmae = 'x'\n[engine]\nmodel='m'", "did you mean 'name'"),
        ("name = 'x'\n[engine]\nmodel='m'\nthread=1", "did you mean 'threads'"),
        ("name = 'x'\n[engine]\nmodel=3", "str is expected"),
        ("name = 'x'\n[engine]\nmodel='m'\nthreads=true", "int is expected"),
        ("name = 'x'\n[engine]\nmodel='m'\nthreads=-1", "may not be negative"),
        ("name = 'x'\nengine = 'torch'", "a table is expected"),
        ("name = 'x'\n[engine]\nmodel='m'\n[traffic]\ntokens='fake'", "one of real, synthetic"),
        ("name = ", "not a readable TOML"),
    ],
)
def test_a_mistake_is_named_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(StropError, match=says) as caught:
        config.load(write(tmp_path, text))
    assert "\n" not in str(caught.value)
    assert "demo.toml" in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StropError, match="no such deployment file"):
        config.load(tmp_path / "absent.toml")


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "demo.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(StropError, match="not a readable TOML"):
        config.load(path)
