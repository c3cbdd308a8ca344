"""The whole corpus again and again, in random order.

Nothing gets in, nothing good is kept out, nothing is left behind.

    python -m tests.attacks.rounds [--rounds 20] [--jobs 2] [--seed N] [--out FILE] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from strop.core import Verdict
from strop.engine.jail import die_with_parent
from tests.support.bench import Bench
from tests.support.corpus import GPU_ONLY, Entry, attacks, good, wrong

MOST_GROWTH = 64 << 20
"""Bytes that the judge or an owner may grow by over all rounds but the first."""


@dataclass
class Tally:
    """What came of all rounds."""

    verdicts: dict[str, list[Verdict]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    rounds: int = 0
    seconds: float = 0.0
    growth: dict[str, int] = field(default_factory=dict)


def main() -> int:
    """Run, print, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    entries = [*attacks(), *good()]
    tally = share(args.rounds, args.jobs, args.seed)
    text = table(entries, tally, args.seed)
    if args.out:
        args.out.write_text(text, encoding="utf-8")
    if args.json:
        args.json.write_text(json.dumps(record(entries, tally, args.seed), indent=1) + "\n", encoding="utf-8")
    print(text)
    for fault in tally.faults:
        print(f"FAULT {fault}", file=sys.stderr)
    return 1 if tally.faults else 0


def share(rounds: int, jobs: int, seed: int) -> Tally:
    """Play the rounds in so many processes side by side, each with engines of its own."""
    parts = [(rounds // jobs + (job < rounds % jobs), seed + job, job == 0) for job in range(jobs)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        tallies = list(pool.map(job_of, parts))
    whole = Tally()
    for tally in tallies:
        for name, verdicts in tally.verdicts.items():
            whole.verdicts.setdefault(name, []).extend(verdicts)
        whole.faults += tally.faults
        whole.rounds += tally.rounds
        whole.seconds = max(whole.seconds, tally.seconds)
        for name, grown in tally.growth.items():
            whole.growth[name] = max(grown, whole.growth.get(name, 0))
    return whole


def job_of(part: tuple[int, int, bool]) -> Tally:
    """Play one process's share of the rounds."""
    rounds, seed, visible = part
    die_with_parent()
    return play([*attacks(), *good()], rounds, random.Random(seed), visible=visible)


def play(entries: list[Entry], rounds: int, rng: random.Random, *, visible: bool) -> Tally:
    """Judge everything `rounds` times and look for what is left after each round."""
    tally, started = Tally(), time.monotonic()
    progress = Progress(console=Console(stderr=True), disable=not visible)
    with tempfile.TemporaryDirectory() as folder, Bench(Path(folder)) as bench, progress:
        task = progress.add_task("attacks", total=rounds * len(entries))
        before: dict[str, object] = {}
        memory: dict[str, int] = {}
        for number in range(rounds):
            for entry in rng.sample(entries, len(entries)):
                progress.update(task, description=f"round {number + 1}: {entry.name}", advance=1)
                verdict = bench.judge(entry)
                tally.verdicts.setdefault(entry.name, []).append(verdict)
                if fault := wrong(entry, verdict):
                    tally.faults.append(f"round {number + 1}, {entry.name}: {fault}")
                    progress.console.print(tally.faults[-1], style="red", markup=False)
            after = bench.state()
            before, memory = before or after, memory or bench.memory()
            changed = {name: (before.get(name), value) for name, value in after.items()}
            tally.faults += [
                f"round {number + 1} left {name}: {old} before, {new} after"
                for name, (old, new) in changed.items()
                if old != new
            ]
            tally.rounds += 1
            tally.seconds = time.monotonic() - started
        tally.growth = {name: now - memory[name] for name, now in bench.memory().items()}
    tally.faults += [
        f"{name} grew by {grown} bytes" for name, grown in tally.growth.items() if grown > MOST_GROWTH
    ]
    return tally


def table(entries: list[Entry], tally: Tally, seed: int) -> str:
    """Return the page for docs/."""
    where = f"{cpu()}, {os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"
    minutes, faults = tally.seconds / 60, len(tally.faults)
    lines = [
        "# Attacks",
        "",
        f"`make attacks`: {tally.rounds} rounds in random order, seed {seed}, {minutes:.0f} minutes.",
        f"{where}. The model is a cut of SmolLM2-135M with its real weights. {faults} faults.",
        "Every attack was refused in every round and every good candidate accepted in every round."
        if not tally.faults
        else "See the faults that the command prints.",
        "After each round: the same processes, descriptors, mounts and weight bytes as before.",
        "",
        "| attack | what it tries | refused as | caught by | time to refuse |",
        "|---|---|---|---|---|",
    ]
    for entry in entries:
        if entry.reasons:
            found = tally.verdicts[entry.name]
            reasons = Counter(v.reason.value if v.reason else v.status.value for v in found)
            checks = Counter(v.checks[-1].name for v in found)
            took = statistics.median(v.seconds for v in found)
            only = " (nothing else would)" if entry.only else ""
            cells = (entry.name, entry.what, said(reasons), said(checks) + only, f"{took:.1f} s")
            lines.append(f"| {' | '.join(cells)} |")
    lines += ["", f"On GPUs only, and not here yet: {', '.join(GPU_ONLY)}.", ""]
    lines += ["| good candidate | what it is | accepted | ratio, lowest to highest |", "|---|---|---|---|"]
    for entry in entries:
        if not entry.reasons:
            found = tally.verdicts[entry.name]
            ratios = [v.slow.overall.ratio for v in found if v.slow]
            span = f"{min(ratios):.2f}x to {max(ratios):.2f}x" if ratios else "not measured"
            accepted = sum(v.status.value == "passed" for v in found)
            lines.append(f"| {entry.name} | {entry.what} | {accepted} of {len(found)} | {span} |")
    return "\n".join(lines) + "\n"


def said(counts: Counter[str]) -> str:
    """Name what was seen, with counts where it was not always the same."""
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{name} {count}x" for name, count in counts.most_common())


def record(entries: list[Entry], tally: Tally, seed: int) -> dict[str, object]:
    """Return the raw results."""
    return {
        "command": " ".join(["python -m tests.attacks.rounds", *sys.argv[1:]]),
        "seed": seed,
        "hardware": {"cpu": cpu(), "cores": os.cpu_count(), "kernel": platform.release()},
        "rounds": tally.rounds,
        "seconds": tally.seconds,
        "faults": tally.faults,
        "growth_bytes": tally.growth,
        "verdicts": {
            entry.name: [
                {
                    "status": v.status.value,
                    "reason": v.reason and v.reason.value,
                    "last": v.checks[-1].name,
                    "seconds": round(v.seconds, 3),
                    "ratio": v.slow.overall.ratio if v.slow else None,
                    "jail": len(v.jail),
                }
                for v in tally.verdicts[entry.name]
            ]
            for entry in entries
        },
    }


def cpu() -> str:
    """Return the processor's name."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    sys.exit(main())
