"""The whole corpus again and again, in random order.

Nothing gets in, nothing good is kept out, nothing is left behind.

    python -m tests.attacks.rounds [--rounds 20] [--jobs 2] [--seed N] [--out FILE] [--json FILE]

With `--json FILE` each finished round is kept in FILE.rounds, and a run that was stopped goes on from there.
With `--read FILE` nothing is run: the raw file of an earlier run is held against the corpus as it is.
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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from strop.engine.jail import die_with_parent
from tests.support.bench import Bench
from tests.support.corpus import GPU_ONLY, Entry, Seen, attacks, good, wrong

MOST_GROWTH = 64 << 20
"""Bytes that the judge or an owner may grow by over all rounds but the first."""


@dataclass
class Round:
    """What came of one round of one process."""

    verdicts: dict[str, Seen]
    left: list[str]
    """What was left behind since the process's first round."""
    seconds: float
    growth: dict[str, int]
    """Bytes that the judge and the owners hold more than after the process's first round."""

    def line(self) -> str:
        """Return the round as one line of JSON."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def of(cls, line: str) -> Round:
        """Read one line of JSON."""
        raw = json.loads(line)
        return cls(**{**raw, "verdicts": {name: Seen(**seen) for name, seen in raw["verdicts"].items()}})


@dataclass
class Tally:
    """What came of all rounds."""

    verdicts: dict[str, list[Seen]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    """Wrong verdicts."""
    left: list[str] = field(default_factory=list)
    """What was left behind."""
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
    parser.add_argument("--read", type=Path)
    args = parser.parse_args()
    entries = [*attacks(), *good()]
    if args.read:
        raw = json.loads(args.read.read_text(encoding="utf-8"))
    else:
        with tempfile.TemporaryDirectory() as folder:
            kept = args.json.with_suffix(".rounds") if args.json else Path(folder, "attacks.rounds")
            share(args.rounds, args.jobs, args.seed, kept)
            raw = record(total(rounds_in(kept), args.jobs), args.seed)
            if args.json:
                args.json.write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
            kept.unlink()
    tally = read(entries, raw)
    text = table(entries, tally, raw)
    if args.out:
        args.out.write_text(text, encoding="utf-8")
    print(text)
    for fault in tally.faults:
        print(f"FAULT {fault}", file=sys.stderr)
    return 1 if tally.faults else 0


def share(rounds: int, jobs: int, seed: int, kept: Path) -> None:
    """Play what is missing in so many processes side by side, each with engines of its own."""
    done = len(rounds_in(kept))
    missing = max(rounds - done, 0)
    if done:
        print(f"{kept} holds {done} rounds: {missing} to go", file=sys.stderr)
    parts = [
        (missing // jobs + (job < missing % jobs), seed + done + job, job == 0, kept) for job in range(jobs)
    ]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        list(pool.map(job_of, parts))


def rounds_in(kept: Path) -> list[Round]:
    """Read the rounds that are finished."""
    if not kept.exists():
        return []
    return [Round.of(line) for line in kept.read_text(encoding="utf-8").splitlines()]


def total(rounds: list[Round], jobs: int) -> Tally:
    """Add up the rounds of all processes."""
    whole = Tally(rounds=len(rounds), seconds=sum(one.seconds for one in rounds) / jobs)
    for one in rounds:
        for name, seen in one.verdicts.items():
            whole.verdicts.setdefault(name, []).append(seen)
        whole.left += one.left
        for name, grown in one.growth.items():
            whole.growth[name] = max(grown, whole.growth.get(name, 0))
    whole.left += [
        f"{name} grew by {grown} bytes" for name, grown in whole.growth.items() if grown > MOST_GROWTH
    ]
    return whole


def job_of(part: tuple[int, int, bool, Path]) -> None:
    """Play one process's share of the rounds."""
    rounds, seed, visible, kept = part
    die_with_parent()
    play([*attacks(), *good()], rounds, random.Random(seed), kept, visible=visible)


def play(entries: list[Entry], rounds: int, rng: random.Random, kept: Path, *, visible: bool) -> None:
    """Judge everything `rounds` times, look for what is left after each round, and keep each round."""
    progress = Progress(console=Console(stderr=True), disable=not visible)
    with tempfile.TemporaryDirectory() as folder, Bench(Path(folder)) as bench, progress:
        task = progress.add_task("attacks", total=rounds * len(entries))
        before: dict[str, object] = {}
        memory: dict[str, int] = {}
        for number in range(rounds):
            verdicts, started = {}, time.monotonic()
            for entry in rng.sample(entries, len(entries)):
                progress.update(task, description=f"round {number + 1}: {entry.name}", advance=1)
                verdicts[entry.name] = seen = Seen.of(bench.judge(entry))
                if fault := wrong(entry, seen):
                    progress.console.print(f"{entry.name}: {fault}", style="red", markup=False)
            after, held = bench.state(), bench.memory()
            before, memory = before or after, memory or held
            left = [
                f"round {number + 1} left {name}: {before.get(name)} before, {new} after"
                for name, new in after.items()
                if before.get(name) != new
            ]
            growth = {name: now - memory[name] for name, now in held.items()}
            with kept.open("a", encoding="utf-8") as file:
                file.write(Round(verdicts, left, time.monotonic() - started, growth).line())


def read(entries: list[Entry], raw: dict[str, Any]) -> Tally:
    """Hold the raw results of a run against what the corpus expects."""
    verdicts = {name: [Seen(**seen) for seen in found] for name, found in raw["verdicts"].items()}
    tally = Tally(verdicts, left=list(raw["left"]), rounds=raw["rounds"], seconds=raw["seconds"])
    for entry in entries:
        for seen in verdicts[entry.name]:
            if fault := wrong(entry, seen):
                tally.faults.append(f"{entry.name}: {fault}")
    tally.faults += tally.left
    return tally


def table(entries: list[Entry], tally: Tally, raw: dict[str, Any]) -> str:
    """Return the page for docs/."""
    minutes, faults = tally.seconds / 60, len(tally.faults)
    lines = [
        "# Attacks",
        "",
        f"`make attacks`: {tally.rounds} rounds in random order, seed {raw['seed']}, {minutes:.0f} minutes.",
        f"{raw['where']}. The model is a cut of SmolLM2-135M with its real weights. {faults} faults.",
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
            reasons = Counter(v.reason for v in found)
            checks = Counter(v.last for v in found)
            took = statistics.median(v.seconds for v in found)
            only = " (nothing else would)" if entry.only else ""
            cells = (entry.name, entry.what, said(reasons), said(checks) + only, f"{took:.1f} s")
            lines.append(f"| {' | '.join(cells)} |")
    lines += ["", f"On GPUs only, and not here yet: {', '.join(GPU_ONLY)}.", ""]
    lines += ["| good candidate | what it is | accepted | ratio, lowest to highest |", "|---|---|---|---|"]
    for entry in entries:
        if not entry.reasons:
            found = tally.verdicts[entry.name]
            ratios = [v.ratio for v in found if v.ratio]
            span = f"{min(ratios):.2f}x to {max(ratios):.2f}x" if ratios else "not measured"
            accepted = sum(v.status == "passed" for v in found)
            lines.append(f"| {entry.name} | {entry.what} | {accepted} of {len(found)} | {span} |")
    return "\n".join(lines) + "\n"


def said(counts: Counter[str]) -> str:
    """Name what was seen, with counts where it was not always the same."""
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{name} {count}x" for name, count in counts.most_common())


def record(tally: Tally, seed: int) -> dict[str, Any]:
    """Return the raw results."""
    where = f"{cpu()}, {os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"
    return {
        "command": " ".join(["python -m tests.attacks.rounds", *sys.argv[1:]]),
        "seed": seed,
        "where": where,
        "rounds": tally.rounds,
        "seconds": tally.seconds,
        "left": tally.left,
        "growth_bytes": tally.growth,
        "verdicts": {name: [asdict(seen) for seen in found] for name, found in tally.verdicts.items()},
    }


def cpu() -> str:
    """Return the processor's name."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    sys.exit(main())
