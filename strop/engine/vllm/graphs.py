"""CUDA graphs by version: captured once, parked while another version runs, put back in microseconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from strop.core import StropError

__all__ = ["Graphs", "NoGraphs", "V2Graphs", "graphs_of"]


class Graphs(Protocol):
    """What a runner replays instead of running the model."""

    def show(self, name: str) -> None:
        """Make the graphs of a version the ones that are replayed; a new version has none yet."""

    def capture(self, size: int) -> None:
        """Capture the model as it is now for decode steps of so many requests, if it is not yet."""

    def capture_all(self) -> None:
        """Capture the model as it is now for decode steps of every size that vLLM has captured."""

    def drop(self) -> None:
        """Forget all but the baseline's, and show those."""


class NoGraphs:
    """A runner without graphs: the CPU, or `--enforce-eager`."""

    def show(self, name: str) -> None:
        """Nothing to show."""

    def capture(self, size: int) -> None:
        """Nothing to capture."""

    def capture_all(self) -> None:
        """Nothing to capture."""

    def drop(self) -> None:
        """Nothing to forget."""


class V2Graphs:
    """Graphs of the V2 runner: one dict from batch shape to graph, replaced as a whole.

    A version's graphs write into a buffer of its own, so that no other version's output can be
    taken for its. The server's graph pool is shared: versions never run side by side.
    """

    def __init__(self, runner: Any, baseline: str) -> None:
        self.runner = runner
        self.manager = runner.cudagraph_manager
        self.baseline = baseline
        self.shown = baseline
        self.parked: dict[str, tuple[dict[Any, Any], Any]] = {
            baseline: (self.manager.graphs, self.manager.hidden_states)
        }
        self.breakable = self.manager.use_breakable_cg

    def show(self, name: str) -> None:
        """Make the graphs of a version the ones that are replayed; a new version has none yet."""
        if name not in self.parked:
            self.parked[name] = {}, torch.empty_like(self.parked[self.baseline][1])
        self.manager.graphs, self.manager.hidden_states = self.parked[name]
        # Prefill graphs of the baseline would run instead of another version's prefill.
        self.manager.use_breakable_cg = self.breakable and name == self.baseline
        self.shown = name

    def capture(self, size: int) -> None:
        """Capture the model as it is now for decode steps of so many requests, if it is not yet."""
        from vllm.config.compilation import CUDAGraphMode

        manager = self.manager
        desc = manager.dispatch(size, size, 1, 0)
        if desc.cg_mode != CUDAGraphMode.FULL or desc in manager.graphs:
            return
        self._capture([desc])

    def capture_all(self) -> None:
        """Capture the model as it is now for decode steps of every size that vLLM has captured."""
        from vllm.config.compilation import CUDAGraphMode

        self._capture(self.manager._capture_descs.get(CUDAGraphMode.FULL, []))

    def _capture(self, descs: list[Any]) -> None:
        from vllm.config.compilation import CUDAGraphMode

        manager = self.manager
        missing = [desc for desc in descs if desc not in manager.graphs]
        if not missing:
            return
        wanted, manager._capture_descs = manager._capture_descs, {CUDAGraphMode.FULL: missing}
        try:
            _unlocked(self.runner.capture_model)
        finally:
            manager._capture_descs = wanted

    def drop(self) -> None:
        """Forget all but the baseline's, and show those."""
        self.show(self.baseline)
        self.parked = {self.baseline: self.parked[self.baseline]}


def graphs_of(runner: Any, baseline: str) -> Graphs:
    """Return the graphs of vLLM's model runner.

    Raises:
        StropError: the V1 runner with CUDA graphs.
    """
    if not getattr(runner, "use_cuda_graph", True):
        return NoGraphs()
    manager = getattr(runner, "cudagraph_manager", None)
    if manager is not None:
        return V2Graphs(runner, baseline) if manager.graphs else NoGraphs()
    if runner.vllm_config.model_config.enforce_eager:
        return NoGraphs()
    raise StropError(
        "vLLM's first model runner with CUDA graphs is not supported yet: "
        "set VLLM_USE_V2_MODEL_RUNNER=1, or add --enforce-eager"
    )


def _unlocked(capture: Callable[[], Any]) -> None:
    """Capture with the workspace free to grow, as it is when the server starts."""
    try:
        from vllm.v1.worker.workspace import lock_workspace, unlock_workspace
    except ImportError:
        capture()
        return
    unlock_workspace()
    try:
        capture()
    finally:
        lock_workspace()
