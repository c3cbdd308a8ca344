"""Every isolation layer holds around CUDA, and a fault inside costs one process."""

from __future__ import annotations

import pytest

from strop.engine import jail
from tests.gpu import jailed_cuda

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True, scope="module")
def warm() -> None:
    """What an owner has done before it forks: torch imported, CUDA untouched, filters built."""
    pytest.importorskip("torch")
    jail.prepare()


def test_cuda_starts_behind_every_layer() -> None:
    found = jailed_cuda.inside(jailed_cuda.matmul)
    assert found["right"], found
    assert jail.missing(found["held"]) == ()
    assert found["uid"] == 65534
    assert found["jail_s"] < 0.1


def test_graphs_are_captured_and_triton_compiles() -> None:
    assert jailed_cuda.inside(jailed_cuda.graph)["right"]
    assert jailed_cuda.inside(jailed_cuda.triton_kernel)["right"]


def test_after_a_sticky_error_the_next_process_is_ready_in_a_second() -> None:
    assert "CUDA error" in jailed_cuda.inside(jailed_cuda.illegal_address)["error"]
    after = jailed_cuda.inside(jailed_cuda.matmul)
    assert after["right"]
    assert after["seen_s"] < 1.0
