"""What every test gets: no user state, no model hub, and GPU tests only where there is a GPU."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

GPU_TESTS = Path(__file__).parent / "gpu"
CUDA_DEVICE = Path("/dev/nvidia0")

# A shared CI core stalls for longer than any deadline; pytest-timeout catches real hangs.
settings.register_profile("strop", deadline=None)
settings.load_profile("strop")


def pytest_configure() -> None:
    # Before any test imports transformers, which reads it once. Engines inherit both.
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.pop("STROP_HOME", None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip = pytest.mark.skip(reason=f"no CUDA device ({CUDA_DEVICE})")
    for item in items:
        if GPU_TESTS in item.path.parents:
            item.add_marker("gpu")
        if item.get_closest_marker("gpu") and not CUDA_DEVICE.exists():
            item.add_marker(skip)
