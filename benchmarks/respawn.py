"""What a crash costs: from the death of a worker to the next one with the candidate loaded.

    python benchmarks/respawn.py [--gib 1] [--repeats 40] [--out FILE]

The model is a stack of linear layers with that many GiB of float32 weights. Each time the worker is
killed by a candidate that reads address 0; what is timed is burying it, forking and jailing the
next, mapping the sealed weights, and building a candidate on them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from strop import config
from strop.core import Candidate, Fault, Tier
from strop.engine.client import ProcessEngine
from strop.engine.contract import Role

WIDTH = 4096
SAME = Candidate({"forward.py": "def build(m, ctx):\n    return {'': m.forward}\n", "manifest.toml": ""})
CRASH = Candidate(
    {"forward.py": "import ctypes\ndef build(m, ctx):\n    ctypes.string_at(0)\n", "manifest.toml": ""}
)


def stack() -> Any:
    """The model: $STROP_BENCH_GIB of weights."""
    import torch
    from torch import nn

    layers = round(float(os.environ["STROP_BENCH_GIB"]) * (1 << 30) / (4 * WIDTH * WIDTH))
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)))
    model = model.to_empty(device="cpu")
    for parameter in model.parameters():
        nn.init.constant_(parameter, 1e-4)
    return model, lambda seed: (torch.full((1, WIDTH), float(seed)),)


def main() -> None:
    """Measure, print, and write the raw figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    os.environ["STROP_BENCH_GIB"] = str(args.gib)
    sys.path.insert(0, str(Path(__file__).parent))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    with ProcessEngine("strop.engine.torch.holder", config.Engine(model="respawn:stack")) as engine:
        engine.replace(Role.ACTIVE)
        took = {"respawn_and_load_ms": [], "replace_ms": [], "crash_respawn_and_load_ms": []}
        for _ in range(args.repeats):
            took["replace_ms"].append(engine.replace(Role.ACTIVE))
            os.kill(int(pid(engine)), 9)
            started = time.perf_counter()
            engine.replace(Role.ACTIVE)
            load(engine)
            took["respawn_and_load_ms"].append((time.perf_counter() - started) * 1e3)
        for _ in range(max(5, args.repeats // 4)):
            took["crash_respawn_and_load_ms"].append(crash(engine))
        print(json.dumps(report(engine, took, args.out), indent=2))


def load(engine: ProcessEngine) -> None:
    """Build the candidate without the probe that the judge takes first."""
    engine._known = engine._known or "not asked"
    engine.load(SAME, Tier.SLOW)


def crash(engine: ProcessEngine) -> float:
    """Time a candidate's own crash: autopsy, private replay, respawn, and the next load."""
    load(engine)
    started = time.perf_counter()
    try:
        engine.load(CRASH, Tier.SLOW)
    except Fault:
        load(engine)
        return (time.perf_counter() - started) * 1e3
    raise SystemExit("the candidate did not crash")


def pid(engine: ProcessEngine) -> int:
    """Of the worker that runs candidates."""
    return engine._workers[Role.ACTIVE].pid


def report(engine: ProcessEngine, took: dict[str, list[float]], out: Path | None) -> dict[str, Any]:
    """Sum up; the raw figures go to `out`."""
    held = engine.describe()
    summary = {
        name: {"median": statistics.median(values), "min": min(values), "max": max(values)}
        for name, values in took.items()
    }
    record = {
        "command": " ".join(["python", *sys.argv]),
        "weights_bytes": held.weight_bytes,
        "jail": held.jail,
        "device": held.fingerprint.device,
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "versions": dict(held.fingerprint.versions),
        "summary": summary,
    }
    if out:
        out.write_text(json.dumps({**record, "raw_ms": took}, indent=1) + "\n", encoding="utf-8")
    return record


if __name__ == "__main__":
    main()
