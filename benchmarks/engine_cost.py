"""What strop itself costs: swap, respawn, and the restart that a swap replaces.

    python benchmarks/engine_cost.py [--model smollm2] [--repeats 20] [--out FILE]

The restart baseline is fair: a fresh process with warm page cache, warm bytecode and no model
conversion left to do, from start to its first correct greedy token.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from strop import config
from strop.core import BASELINE_ID, Candidate, Tier
from strop.engine.client import ProcessEngine
from strop.engine.contract import Batch, Role

PROMPT = tuple(range(100, 132))
SAME = Candidate(
    files={
        "forward.py": "def build(model, ctx):\n"
        "    original = model.forward\n"
        '    return {"": lambda *args, **kwargs: original(*args, **kwargs)}\n',
        "manifest.toml": "",
    }
)
RESTART = """
import sys, torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
with torch.inference_mode():
    print(int(model(input_ids=torch.arange(100, 132)[None], logits_to_keep=1).logits[0, -1].argmax()))
"""


def main() -> None:
    """Measure, print a table, and write the raw figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with ProcessEngine("strop.engine.torch.holder", config.Engine(model=args.model)) as engine:
        figures = {
            "swap_ms": swaps(engine, args.repeats),
            "respawn_ms": respawns(engine, args.repeats),
            "respawn_to_first_token_ms": respawns(engine, args.repeats, first_token=True),
            "restart_s": restarts(engine, max(3, args.repeats // 5)),
        }
        print(json.dumps(report(engine, figures, args.out), indent=2))


def swaps(engine: ProcessEngine, repeats: int) -> list[float]:
    """Time from asking for another version until it is the one that runs."""
    engine.load(SAME, Tier.SLOW)
    times = [engine.activate(v, Tier.SLOW) for _ in range(repeats) for v in (SAME.id, BASELINE_ID)]
    engine.restore()
    return times


def respawns(engine: ProcessEngine, repeats: int, *, first_token: bool = False) -> list[float]:
    """Time from killing a worker until the next one is ready (or has answered a prompt)."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        engine.replace(Role.ACTIVE)
        if first_token:
            engine.measure(Batch(prompts=(PROMPT,)))
        times.append((time.perf_counter() - started) * 1e3)
    return times


def restarts(engine: ProcessEngine, repeats: int) -> list[float]:
    """Time of a fresh process up to its first greedy token, caches warm, in s."""
    folder = str(Path(engine.describe().tokenizer).parent)
    token = str(int(engine.measure(Batch(prompts=(PROMPT,))).tokens[0, 0]))
    times = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", RESTART, folder], capture_output=True, text=True, check=True
        )
        times.append(time.perf_counter() - started)
        assert done.stdout.strip() == token, "the restarted process must answer the same"
    return times[1:]


def report(engine: ProcessEngine, figures: dict[str, list[float]], out: Path | None) -> dict[str, Any]:
    """Return medians and ranges with the setup; write the raw figures to `out`."""
    held = engine.describe()
    setup = {
        "command": " ".join(["python", *sys.argv]),
        "cpu": held.fingerprint.device,
        "cores": os.cpu_count(),
        "model": held.model,
        "weight_bytes": held.weight_bytes,
        "versions": dict(held.fingerprint.versions),
        "kernel": platform.release(),
        "date": time.strftime("%Y-%m-%d"),
    }
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps({"setup": setup, "raw": figures}, indent=1) + "\n")
    summary = {
        name: {
            "median": round(statistics.median(v), 3),
            "min": round(min(v), 3),
            "max": round(max(v), 3),
        }
        for name, v in figures.items()
    }
    return {"setup": setup, "summary": summary}


if __name__ == "__main__":
    main()
