"""The folder an agent works in: the model's raw source, the task, the parent, what was tried."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from strop.core import BASELINE_ID, Candidate, Status, Target, Trial
from strop.engine.candidate_package import write_files
from strop.engine.contract import Description

__all__ = ["PARENT", "write"]

PARENT = {
    "forward.py": '''"""Describe the rewrite in one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn


def build(model: nn.Module, ctx: Any) -> Mapping[str, Callable[..., Any]]:
    """Return {module path or glob: new forward}; the empty path is the whole forward pass."""
    return {"": model.forward}
''',
    "manifest.toml": 'author = "me"\nparent = "baseline"\nprecision = "same"\n',
}
"""What a first candidate starts from: the model's own forward."""

_TASK = """# Task

Make this forward pass as fast as possible; its outputs must still pass.

Model: {model} ({architecture}), {parameters:,} parameters, {dtype}, {layers} layers.
Hardware: {device}, {cores} cores, {threads} threads.

## Where the time goes

| phase | cluster | baseline, ms a step | roofline floor, ms | headroom |
|---|---|---|---|---|
{targets}

## The contract

Change the files in `candidate/`. `forward.py` defines `build(model, ctx)` and returns
{{module path or glob: new forward}}; `""` is the whole forward pass. A new forward takes the
arguments of the one it replaces. `build` may repack weights once (the memory is counted); the
model's own weights are mapped read-only, and a write to one ends the worker.
`ctx` has tier, device, dtype, threads, max_context, precision and cache_name.
Other files (`*.py`, `*.cpp`, `*.cu`) can be imported relatively.
Precision: {precision}.

The raw source of the model is in `source/`.

## Best so far

{best}

## Last failures

{failures}
"""


def write(
    folder: Path,
    description: Description,
    targets: Sequence[Target],
    trials: Sequence[Trial],
    *,
    parent: Candidate | None = None,
    elites: Sequence[Candidate] = (),
    any_precision: bool = False,
) -> Path:
    """Fill a folder and return it; what is in it already is overwritten.

    Args:
        folder: made if there is none.
        description: of the engine that will run the candidate.
        targets: most time first.
        trials: of the run so far; the last ten failures are told in one line each.
        parent: what to start from; the model's own forward by default.
        elites: the best few others, shown as diffs against the parent.
        any_precision: whether the deployment opted in to a change of precision.
    """
    parent = parent or Candidate(files=PARENT, author="strop", parent=BASELINE_ID)
    write_files(folder / "source", description.source)
    write_files(folder / "candidate", parent.files)
    for elite in elites:
        write_files(folder / "elites", {f"{elite.id[:12]}.diff": _diff(parent, elite)})
    f = description.fingerprint
    text = _TASK.format(
        model=description.model,
        architecture=description.architecture,
        parameters=description.parameters,
        layers=description.layers,
        dtype=f.dtype,
        device=f.device,
        cores=f.cores,
        threads=f.threads,
        targets="\n".join(map(_target, targets)),
        precision="may change, declared in manifest.toml" if any_precision else "must stay the same",
        best=_best(trials),
        failures=_failures(trials),
    )
    write_files(folder, {"TASK.md": text})
    return folder


def _target(t: Target) -> str:
    return f"| {t.phase.value} | {t.cluster} | {t.baseline_ms:.1f} | {t.floor_ms:.1f} | {t.headroom:.1f}x |"


def _best(trials: Sequence[Trial]) -> str:
    passed = [(t, t.verdict.slow) for t in trials if t.verdict.status is Status.PASSED]
    ranked = sorted(((m.overall.ratio, t) for t, m in passed if m), key=lambda pair: -pair[0])
    lines = [f"- {ratio:.3f}x {t.proposal.candidate[:12]} {dict(t.proposal.params)}" for ratio, t in ranked]
    return "\n".join(lines[:3]) or "nothing has passed yet"


def _failures(trials: Sequence[Trial]) -> str:
    failed = [t for t in trials if t.verdict.status is Status.FAILED]
    lines = [f"- {t.verdict.reason}: {' '.join(t.verdict.detail.split())[:200]}" for t in failed[-10:]]
    return "\n".join(lines) or "none"


def _diff(old: Candidate, new: Candidate) -> str:
    parts: list[str] = []
    for name in sorted(old.files.keys() | new.files.keys()):
        before, after = (c.files.get(name, "").splitlines(keepends=True) for c in (old, new))
        parts += difflib.unified_diff(before, after, f"parent/{name}", f"elite/{name}")
    return "".join(parts)
