"""How often the judge is wrong about speed: it must not accept the same code, and find a 2 % gain.

    python benchmarks/judge_power.py [--quick] [--part simulated|same|planted|workers] [--out FILE]

Run it in the repository's folder. Every comparison goes through `Judge.race` and the judge's own
checks of what was timed: simulated ones behind a fake engine with a clock of its own, real ones in
real workers, with a process beside them that burns a core in bursts.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from strop import config, loop
from strop.core import BASELINE_ID, Candidate, Cluster, Pair, Status, Tier, Workload
from strop.dash.terminal import Quiet
from strop.engine.client import ProcessEngine
from strop.engine.contract import Batch, Kind, Role, Timing
from strop.engine.start import HOLDERS, start
from strop.gate.case import Case
from strop.gate.exam import Exam
from strop.gate.order import CHECKS, When
from strop.gate.record import Record
from strop.judge import CONFIRMATIONS, Judge
from strop.measure import pairing
from strop.measure.step import Bench
from strop.turn import Turn

GAIN = 0.02
PARTS = "all", "simulated", "same", "planted", "workers"
RESULT = Path("benchmarks/results/judge-power-cpu.json")
PATIENT = config.Policy()
POLICIES = {"default": PATIENT}
BURN = """
import os, random, time
parent = os.getppid()
while os.getppid() == parent:
    until = time.perf_counter() + random.uniform(0.02, 1.0)
    while time.perf_counter() < until:
        sum(range(1000))
    time.sleep(random.uniform(0.02, 1.0))
"""


@dataclass(frozen=True, slots=True)
class Noise:
    """A machine, as logs of its times."""

    pair: float
    """Spread of a pair's log ratio, but for what follows."""
    drift: float
    """Step of a random walk from one timed run to the next."""
    trend: float = 0.001
    """Slower, or faster, by so much with each timed run."""
    burst: float = 0.03
    """Chance that a timed run starts a burst, in which times are up to doubled."""


NOISE = {"1.5 %": Noise(0.015, 0.005), "3 %": Noise(0.03, 0.005), "rough": Noise(0.02, 0.02)}
SHARED = {"shared": Noise(0.045, 0.01)}
"""About what a virtual machine on a busy host shows."""


@dataclass(slots=True)
class Simulated:
    """An engine that computes nothing: it looks at a clock that nobody waits for."""

    noise: Noise
    gain: float
    seed: int
    state: float = 0.0
    left: int = 0
    """Timed runs until the burst ends."""
    height: float = 0.0
    active: str = BASELINE_ID
    kind: Kind = Kind.MODULE
    jail: tuple[str, ...] = ()
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def describe(self) -> Simulated:
        return self

    def activate(self, version: str, tier: Tier) -> float:
        self.active = version
        return 0.05

    def sample(self, seed: int) -> Batch:
        return Batch()

    def load(self, candidate: Candidate, tier: Tier) -> None:
        self.active = BASELINE_ID

    def replace(self, role: Role) -> float:
        return 0.0

    def measure(self, batch: Batch, role: Role = Role.ACTIVE) -> Timing:
        noise, rng = self.noise, self.rng
        self.state += rng.gauss(0, noise.drift) + noise.trend * (1 if self.seed % 2 else -1)
        if not self.left and rng.random() < noise.burst:
            self.left, self.height = rng.randint(1, 5), rng.uniform(0.2, math.log(2))
        log = self.state + rng.gauss(0, noise.pair / math.sqrt(2))
        if self.left:
            self.left, log = self.left - 1, log + self.height
        if role is Role.ACTIVE and self.active != BASELINE_ID:
            log -= math.log1p(self.gain)
        return Timing(round(1e9 * math.exp(log)), 0, np.zeros((0, 0), np.int64))


@dataclass(frozen=True, slots=True)
class Found:
    """How one comparison ended."""

    status: str
    rounds: int
    ratio: float
    e_value: float
    futility: float
    spread: float
    """Of the pairs' log ratios: standard deviation of a normal law with their 5th to 95th percentile."""
    beside: float
    """Median of the baseline's time beside the candidate over its time in the clean worker."""
    detail: str


def named(source: str, number: int) -> Candidate:
    """A candidate whose id is another for each number."""
    return Candidate({"forward.py": f"# {number}\n{source}", "manifest.toml": ""}, author="benchmark")


SAME = 'def build(model, ctx):\n    return {"": model.forward}\n'
QUICK = 'def build(model, ctx):\n    return {"": model.quick}\n'


def compare(judge: Judge, candidate: Candidate, *, final: bool) -> Found:
    """Race a candidate as a search does, or as its confirmation does, and ask what is asked then."""
    cases: list[Case] = []

    def race(case: Case, record: Record) -> None:
        if final:
            alpha = case.policy.alpha / CONFIRMATIONS
            case.policy = replace(case.policy, alpha=alpha, worth=case.policy.delta)
        case.held_out = final
        case = case.on(Tier.SLOW, Exam(Tier.SLOW, bit_exact=True))
        cases.append(case)
        case.engine.load(candidate, Tier.SLOW)
        rounds = judge.turn.final_rounds() if final else case.policy.pairs_slow
        judge.race(case, rounds, record)
        judge.check(When.TIMED, case, record)

    verdict = judge.conclude(candidate, True, race)
    return found(cases[0], verdict.status, verdict.detail)


def found(case: Case, status: Status, detail: str) -> Found:
    decision = case.decision
    assert decision is not None, detail
    beside = [run.beside_ns / run.clean_ns for run in case.runs if run.clean_ns]
    return Found(
        status.value,
        decision.overall.pairs,
        round(decision.overall.ratio, 5),
        float(f"{decision.e_value:.4g}"),
        float(f"{decision.futility:.4g}"),
        round(spread([run.pair.log_ratio for run in case.runs]), 5),
        round(statistics.median(beside), 5),
        detail,
    )


def spread(logs: list[float]) -> float:
    low, high = np.percentile(logs, (5, 95))
    return float(high - low) / 3.29


# -- simulated ----------------------------------------------------------------------------------


def simulated(
    policy: config.Policy, noise: Noise, seed: int, *, gain: float, final: bool, clusters: int = 1
) -> Found:
    """One comparison on a simulated clock."""
    engine = Simulated(noise, gain, seed)
    deployment = config.Deployment("simulated", config.Engine("simulated"), policy=policy)
    parts = tuple(Cluster(i, 1, 1, 1 / clusters) for i in range(clusters))
    turn = Turn(deployment, engine, Workload("simulated", "1", 1, parts), None)  # type: ignore[arg-type]
    gates = tuple(gate for gate in CHECKS if gate.name == "speed")
    judge = Judge(turn, Quiet(), secret=str(seed).encode(), gates=gates)
    return compare(judge, named(SAME, seed), final=final)


def simulations(progress: Progress, quick: bool) -> list[dict[str, Any]]:
    """Every policy, in the search and in the confirmation: same code, and a planted gain."""
    same, planted = (20, 10) if quick else (1000, 100)
    cells: list[tuple[str, float, int, int]] = [(" or ".join(NOISE), 0.0, 1, same), ("shared", 0.0, 1, same)]
    cells += [(noise, GAIN, 1, planted) for noise in ("1.5 %", "3 %", "shared")]
    cells += [("1.5 %", gain, 8, planted) for gain in (GAIN, 0.2)]
    rows = []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for (name, policy), final in itertools.product(POLICIES.items(), (False, True)):
            for noise, gain, clusters, count in cells:
                stage = "confirmation" if final else "search"
                task = progress.add_task(f"simulated, {name} policy, {stage}, gain {gain:.0%}", total=count)
                kinds = [(NOISE | SHARED)[kind] for kind in noise.split(" or ")]
                job = partial(simulated, policy, gain=gain, final=final, clusters=clusters)
                noises = itertools.islice(itertools.cycle(kinds), count)
                outcomes = []
                for outcome in pool.map(job, noises, range(count), chunksize=5):
                    outcomes.append(outcome)
                    progress.advance(task)
                progress.remove_task(task)
                row = {"part": "simulated", "policy": name, "stage": stage, "noise": noise, "gain": gain}
                rows.append({**row, "clusters": clusters, "outcomes": outcomes})
    return rows


# -- real ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def load(wanted: bool) -> Iterator[None]:
    """Have another process burn a core in bursts of random length."""
    if not wanted:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", BURN])
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def engine(waste: int, policy: config.Policy) -> Iterator[Judge]:
    """A judge of a real module in real workers."""
    os.environ["STROP_PLANTED_WASTE"] = str(waste)
    held = config.Engine("benchmarks.planted:planted", threads=1)
    deployment = config.Deployment("planted", held, policy=policy)
    with start(deployment, lambda line: None) as running:
        yield Judge(loop.observe(deployment, running, Quiet()), Quiet())


def long_run(judge: Judge, rounds: int) -> list[float]:
    """Log ratios of `quick` in a long run of pairs, half of them in another worker."""
    turn, candidate, logs = judge.turn, named(QUICK, -1), []
    cluster = turn.workload.clusters[0]
    for half in range(2):
        turn.engine.load(candidate, Tier.SLOW)
        bench = Bench(turn.engine, Tier.SLOW, turn.draw(False), 0)
        bench.warm_up(candidate.id, turn.workload.clusters, random.Random(half))
        for slots in pairing.rounds(turn.workload, rounds // 2, random.Random(half)):
            logs += [bench.run(candidate.id, cluster, slot).pair.log_ratio for slot in slots]
        turn.engine.replace(Role.ACTIVE)
    return logs


def gain_of(logs: list[float]) -> dict[str, float]:
    """The gain, where few pairs are disturbed: the mean of the middle half, with its error."""
    middle = np.sort(logs)[len(logs) // 4 : -len(logs) // 4]
    rng = np.random.default_rng(0)
    again = np.sort(rng.choice(logs, (300, len(logs))), axis=1)[:, len(logs) // 4 : -len(logs) // 4]
    error = float(np.std(again.mean(axis=1)))
    return {"gain": math.expm1(float(middle.mean())), "error": error, "pairs": len(logs)}


def calibrate(progress: Progress) -> tuple[int, list[dict[str, float]]]:
    """Find how much waste is 2 % of the model's time; return it with every attempt's figures."""
    task = progress.add_task("calibrating the planted gain", total=None)
    waste, tried = 40, []
    for rounds in (1000, 2000, 4000):
        with engine(waste, PATIENT) as judge:
            measured = gain_of(long_run(judge, rounds))
        tried.append({"waste": waste, **measured})
        if rounds < 4000 and measured["gain"] > 0:  # the last one tells what the gain is
            waste = min(400, max(1, round(waste * GAIN / measured["gain"])))
    progress.remove_task(task)
    return waste, tried


def real(progress: Progress, part: str, waste: int, quick: bool) -> list[dict[str, Any]]:
    """Same code under a load, or the planted gain: search, and confirmation of what it found."""
    gain, source, count = (0.0, SAME, 2 if quick else 50) if part == "same" else (GAIN, QUICK, 20)
    policy = config.Policy(numerics="bit_exact", pairs_slow=12, patience_s=5.0) if quick else PATIENT
    task = progress.add_task(f"real engine, {part}", total=count)
    searched, confirmed = [], []
    with load(part == "same"), engine(waste, policy) as judge:
        for number in range(count):
            candidate = named(source, number)
            searched.append(compare(judge, candidate, final=False))
            if searched[-1].status == "passed":
                confirmed.append(compare(judge, candidate, final=True))
            progress.advance(task)
    progress.remove_task(task)
    row = {"part": part, "policy": "default", "noise": "as it is" if gain else "a load"}
    row = {**row, "gain": gain, "clusters": 1}
    return [
        {**row, "stage": "search", "outcomes": searched},
        {**row, "stage": "confirmation", "outcomes": confirmed},
    ]


def workers(progress: Progress, model: str, threads: int, count: int, pairs: int) -> dict[str, Any]:
    """The same baseline in fresh workers, each in turn with one that stays: constant differences."""
    task, found = progress.add_task(f"workers of {model}", total=count), []
    with ProcessEngine(HOLDERS["torch"], config.Engine(model, threads=threads)) as running:
        vocab, rng = running.describe().vocab, random.Random(0)
        for _ in range(count):
            running.replace(Role.ACTIVE)
            logs = []
            for number in range(-1, pairs):
                batch = Batch((tuple(rng.choices(range(vocab), k=32)),), steps=2, forced=((1,),))
                times = {}
                for role in rng.sample((Role.ACTIVE, Role.BASELINE), 2):
                    times[role] = running.measure(batch, role).total_ns
                if number >= 0:  # the first run is slow
                    logs.append(Pair(0, times[Role.ACTIVE], times[Role.BASELINE], True))
            found.append([pair.log_ratio for pair in logs])
            progress.advance(task)
    progress.remove_task(task)
    return {"model": model, "threads": threads, "logs": found}


# -- report -------------------------------------------------------------------------------------


def show(rows: list[dict[str, Any]], spreads: list[dict[str, Any]]) -> list[Table]:
    names = "part", "policy", "stage", "noise", "clusters", "gain", "accepted", "how", "rounds", "spread"
    table = Table(*names)
    for row in rows:
        o = row["outcomes"]
        if not o:
            continue
        accepted = sum(found.status == "passed" for found in o)
        rounds = np.percentile([found.rounds for found in o], (50, 95))
        statuses = " ".join(f"{n} {status}" for status, n in Counter(found.status for found in o).items())
        noise = statistics.median(found.spread for found in o)
        labels = (row["part"], row["policy"], row["stage"], row["noise"], str(row["clusters"]))
        figures = (f"{row['gain']:.0%}", f"{accepted} of {len(o)}", statuses)
        table.add_row(*labels, *figures, f"{rounds[0]:.0f}, p95 {rounds[1]:.0f}", f"{noise:.1%}")
    beside = Table(
        "workers of", "how many", "over the one that stays, sorted", "error of one", "spread of a pair"
    )
    for one in spreads:
        ratios = sorted(math.exp(statistics.median(logs)) for logs in one["logs"])
        errors = [1.25 * spread(logs) / math.sqrt(len(logs)) for logs in one["logs"]]
        noise = statistics.median(spread(logs) for logs in one["logs"])
        text = " ".join(f"{ratio:.3f}" for ratio in ratios)
        error = statistics.median(errors)
        beside.add_row(one["model"], str(len(ratios)), text, f"{error:.1%}", f"{noise:.1%}")
    return [table, beside] if spreads else [table]


def setup() -> dict[str, Any]:
    """Describe machine and software."""
    with ProcessEngine(HOLDERS["torch"], config.Engine("benchmarks.planted:planted")) as running:
        held = running.describe().fingerprint
    return {
        "command": " ".join(["python", *sys.argv]),
        "cpu": held.device,
        "cores": os.cpu_count(),
        "load_average_before": os.getloadavg(),
        "versions": dict(held.versions),
        "kernel": platform.release(),
        "date": time.strftime("%Y-%m-%d"),
        "policies": {name: asdict(policy) for name, policy in POLICIES.items()},
        "noise": {name: asdict(noise) for name, noise in NOISE.items()},
    }


def main() -> None:
    """Measure, print the tables, and write the raw outcomes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="a few of each; writes nothing unless --out")
    parser.add_argument("--part", choices=PARTS, default="all")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    rows, spreads, tried, begun = [], [], [], time.monotonic()
    about = setup()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        if args.part in ("all", "simulated"):
            rows += simulations(progress, args.quick)
        if args.part in ("all", "same"):
            rows += real(progress, "same", 0, args.quick)
        if args.part in ("all", "planted") and not args.quick:
            waste, tried = calibrate(progress)
            rows += real(progress, "planted", waste, args.quick)
        if args.part in ("all", "workers") and not args.quick:
            spreads.append(workers(progress, "tests.support.models:tiny_llama", 1, 10, 60))
            spreads.append(workers(progress, "smollm2", 0, 10, 12))
    console = Console(width=160)
    for table in show(rows, spreads):
        console.print(table)
    console.print("calibration:", tried)
    out = args.out or (None if args.quick or args.part != "all" else RESULT)
    if out:
        raw = [{**row, "outcomes": [asdict(found) for found in row["outcomes"]]} for row in rows]
        about["seconds"] = round(time.monotonic() - begun)
        text = json.dumps({"setup": about, "calibration": tried, "rows": raw, "workers": spreads})
        out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
