"""Candidates in a vLLM server that was started once, against restarting it for each.

    python benchmarks/vllm_swaps.py --out FILE -- vllm serve {model} --dtype bfloat16
    python benchmarks/vllm_swaps.py --shape llama-33b --no-weights --out FILE -- vllm serve {model} ...

A random Llama of real scale is served by the command (`{model}` is its folder). Each candidate is
loaded, checked on one question and timed in pairs with the user's own configuration, on the first
K layers and then on all; the server is started again once with warm caches; the fastest candidate
goes through the whole judge and is then served through the API beside the baseline. What was
measured so far is written after every part.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import platform
import random
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from strop import config
from strop.core import (
    BASELINE_ID,
    Candidate,
    Cluster,
    Fault,
    Phase,
    Status,
    Tier,
    TokenSource,
    Verdict,
    Workload,
)
from strop.dash.terminal import Quiet
from strop.engine.contract import Batch, Role, Timed
from strop.engine.vllm.engine import VllmEngine
from strop.judge import Judge
from strop.measure.pairing import rounds
from strop.measure.step import Bench
from strop.propose.compose import compose_vllm
from strop.propose.rewrites import space
from strop.turn import Turn
from strop.workload import Prompts

PAIRS = {Tier.FAST: 8, Tier.SLOW: 16}
PROMISING = 0.97
"""As in the judge: the share of the best fast ratio yet that sends a candidate to the slow tier."""


class Study:
    """One server, and what was measured on it."""

    def __init__(self, args: argparse.Namespace, model: str) -> None:
        self.args, self.out = args, Path(args.out)
        command = tuple(part.replace("{model}", model) for part in args.command)
        self.settings = config.Engine(
            model=model, kind="vllm", command=command, load_timeout_s=500.0, step_timeout_s=120.0
        )
        started = time.monotonic()
        self.engine = VllmEngine(self.settings, lambda line: None)
        self.found: dict[str, Any] = {
            "command": f"python benchmarks/vllm_swaps.py {' '.join(sys.argv[1:])}",
            "shape": args.shape,
            "start_s": time.monotonic() - started,
            "trials": [],
        }
        held = self.engine.describe()
        shown = held.fingerprint
        self.found |= {
            "device": shown.device,
            "host": f"{platform.machine()}, {shown.cores} cores, Python {platform.python_version()}",
            "versions": dict(shown.versions),
            "flags": dict(shown.flags),
            "layers": [held.fast_layers, held.layers],
            "weight_bytes": held.weight_bytes,
        }
        share = 1.0 / len(args.levels)
        clusters = (Cluster(i, args.isl, args.osl, share, level) for i, level in enumerate(args.levels))
        self.workload = Workload("random", "1", 1, tuple(clusters), TokenSource.SYNTHETIC)
        deployment = config.Deployment(
            args.shape,
            self.settings,
            config.Traffic(tokens=TokenSource.SYNTHETIC),
            config.Search(),
            config.Policy(positions=args.positions, decode_steps=32, trust=True, patience_s=30.0),
        )
        prompts = Prompts("", held.vocab, tokens=TokenSource.SYNTHETIC)
        self.turn = Turn(deployment, self.engine, self.workload, prompts)

    def save(self, **more: Any) -> None:
        """Write down what is known."""
        self.found |= more
        self.out.write_text(json.dumps(self.found, indent=1) + "\n", encoding="utf-8")

    def attempt(self, part: Callable[[], Any]) -> None:
        """Run a part; its failure is written down and the next one runs."""
        try:
            part()
        except Exception:
            self.save(errors=[*self.found.get("errors", []), traceback.format_exc()])
            self.engine.revive()

    # -- parts ------------------------------------------------------------------------------------

    def baseline(self) -> None:
        """Time the user's own configuration, the swap and the restore."""
        times: dict[str, list[float]] = {}
        for tier, cluster in itertools.product(Tier, self.workload.clusters):
            batch = self.turn.draw(False)(cluster, 1, 1)
            batch = Batch(prompts=batch.prompts, steps=64, forced=batch.forced)
            name = f"{tier.value} tier, concurrency {cluster.concurrency}"
            self.engine.activate(BASELINE_ID, tier)
            for _ in range(6):
                timing = self.engine.measure(batch)
                times.setdefault(f"{name}, prefill", []).append(timing.prefill_ns / 1e6)
                times.setdefault(f"{name}, step", []).append(timing.decode_ns / 64e6)
        self.save(baseline_ms={name: statistics.median(values[1:]) for name, values in times.items()})

    def trials(self, count: int) -> list[tuple[float, Candidate]]:
        """Try so many distinct candidates on both tiers; return (slow ratio, candidate)."""
        ranked = []
        for candidate, params in distinct(count):
            row: dict[str, Any] = {"id": candidate.id[:12], "params": dict(params)}
            try:
                for tier in Tier:
                    row[tier.value] = self._tier(candidate, tier)
                started = time.monotonic()
                self.engine.restore()
                row["restore_s"] = time.monotonic() - started
                self.engine.replace(Role.ACTIVE)
                row["session_s"] = time.monotonic() - started
                ranked.append((row["slow"]["ratio"], candidate))
            except Fault as fault:
                row["fault"] = str(fault)
                self.engine.replace(Role.ACTIVE)
            self.found["trials"].append(row)
            self.save()
        self.save(**summary(self.found["trials"]))
        return sorted(ranked, key=lambda pair: -pair[0])

    def _tier(self, candidate: Candidate, tier: Tier) -> dict[str, Any]:
        started = time.monotonic()
        loaded_ms = self.engine.load(candidate, tier).build_ms
        self.engine.activate(candidate.id, tier)
        captured = time.monotonic()
        question = self.turn.exam(tier).questions[0]
        self.engine.score(question)
        scored_s = time.monotonic() - captured
        bench = Bench(self.engine, tier, self.turn.draw(False), 32)
        rng = random.Random(7)
        workload = self.turn.tier_workload(tier)
        bench.warm_up(candidate.id, workload.clusters, rng)
        runs = [
            bench.run(candidate.id, workload.cluster(slot.cluster), slot)
            for slots in rounds(workload, PAIRS[tier], rng)
            for slot in slots
        ]
        clusters = [
            {
                "concurrency": cluster.concurrency,
                "request": ratio(run for run in runs if run.pair.cluster == cluster.id),
                "decode": ratio((run for run in runs if run.pair.cluster == cluster.id), Phase.DECODE),
            }
            for cluster in workload.clusters
        ]
        return {
            "load_ms": loaded_ms,
            "capture_and_score_s": scored_s,
            "swap_ms": statistics.median(bench.swap_ms),
            "ratio": statistics.geometric_mean(row["request"] for row in clusters),
            "decode": statistics.geometric_mean(row["decode"] for row in clusters),
            "clusters": clusters,
            "seconds": time.monotonic() - started,
        }

    def restart(self) -> None:
        """Start the server again, as a search without hot swap does for each candidate."""
        started = time.monotonic()
        self.engine.revive()
        restart_s = time.monotonic() - started
        slow_s = statistics.mean(row["slow"]["seconds"] for row in self.found["trials"] if "slow" in row)
        self.save(warm_restart_s=restart_s, restarting_trials_per_hour=3600 / (restart_s + slow_s))

    def judged(self, candidate: Candidate) -> None:
        """Send a candidate through the whole judge."""
        self.turn.draw_final_questions()
        self.turn.measure_floors()
        judge = Judge(self.turn, Quiet())
        verdicts = [judge(candidate, trusted=True)]
        if verdicts[0].status is Status.PASSED:
            verdicts.append(judge.confirm(candidate, trusted=True))
        self.save(judge=[told(verdict) for verdict in verdicts], judged=candidate.id[:12])

    def served(self, candidate: Candidate) -> None:
        """Ask the server through its API, the baseline and the candidate in turns."""
        rows = []
        for _ in range(self.args.turns):
            for side in ("baseline", "candidate"):
                if side == "candidate":
                    self.engine.keep(candidate)
                else:
                    self.engine.activate(BASELINE_ID, Tier.SLOW)
                    self.engine.replace(Role.ACTIVE)
                for concurrency in self.args.levels:
                    row = asyncio.run(self._load(concurrency))
                    rows.append({"side": side, "concurrency": concurrency, **row})
                    self.save(api=rows)

    async def _load(self, concurrency: int) -> dict[str, Any]:
        from openai import AsyncOpenAI

        served = self.engine.served
        client = AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none", timeout=300)
        rng, vocab, args = random.Random(), self.engine.describe().vocab, self.args
        tpot: list[float] = []
        ttft: list[float] = []
        bursts: list[float] = []

        async def one(count: bool) -> None:
            prompt = [rng.randrange(vocab) for _ in range(args.isl)]
            extra = {"ignore_eos": True, "temperature": 0.0}
            options = {"include_usage": True, "continuous_usage_stats": True}
            started = time.perf_counter()
            stream = await client.completions.create(
                model=served.served_name,
                prompt=prompt,
                max_tokens=args.osl,
                stream=True,
                stream_options=options,
                extra_body=extra,
            )
            seen = [
                (time.perf_counter(), chunk.usage.completion_tokens)
                async for chunk in stream
                if chunk.choices and chunk.usage
            ]
            # A client or server that is short of CPU gets several tokens in one chunk: time
            # per token counts from the first chunk's time over the tokens that came after it.
            (first_s, first), (last_s, last) = seen[0], seen[-1]
            if count:
                ttft.append(first_s - started)
                tpot.append((last_s - first_s) / (last - first) if last > first else math.nan)
                bursts.append(1 - len(seen) / last)

        async def user(requests: int) -> None:
            for number in range(requests):
                await one(number > 0)

        started = time.perf_counter()
        await asyncio.gather(*(user(args.requests) for _ in range(concurrency)))
        seconds = time.perf_counter() - started
        await client.close()
        return {
            "requests": len(tpot),
            "tokens_that_came_in_bursts": max(bursts),
            "ttft_ms": {"p50": 1e3 * statistics.median(ttft), "max": 1e3 * max(ttft)},
            "tpot_ms": {"p50": 1e3 * statistics.median(tpot), "max": 1e3 * max(tpot)},
            "tok_s_user": statistics.median(1 / value for value in tpot),
            "tok_s": concurrency * args.requests * args.osl / seconds,
        }


def ratio(runs: Iterable[Timed], phase: Phase | None = None) -> float:
    """Return the median of baseline over candidate, of whole requests or of one phase."""
    sides = [run.phases[phase] if phase else (run.pair.baseline_ns, run.pair.candidate_ns) for run in runs]
    return statistics.median(b / c for b, c in sides)


def distinct(count: int) -> list[tuple[Candidate, Mapping[str, Any]]]:
    """Return so many candidates: those worth trying first, then random draws from the space."""
    rng, found = random.Random(1), {}
    choices = space.choices(space.VLLM)
    queue = [space.full(space.VLLM, params) for params in space.VLLM_FIRST]
    while len(found) < count:
        params = queue.pop(0) if queue else {name: rng.choice(of) for name, of in choices.items()}
        params["phase"] = "decode"
        candidate = compose_vllm(params, "search")
        found.setdefault(candidate.id, (candidate, params))
    return list(found.values())


def summary(trials: list[dict[str, Any]]) -> dict[str, Any]:
    """Return correlation of the tiers and trials an hour, all on both tiers or the promising ones."""
    whole = [row for row in trials if "fault" not in row]
    if len(whole) < 2:
        return {}
    best, spent, alone = 0.0, 0.0, 0.0
    for row in whole:
        rest = row["session_s"]
        spent += row["fast"]["seconds"] + rest
        if row["fast"]["ratio"] >= PROMISING * best:
            spent += row["slow"]["seconds"]
        best = max(best, row["fast"]["ratio"])
        alone += row["slow"]["seconds"] + rest
    correlations = {
        name: _spearman([pick(r["fast"]) for r in whole], [pick(r["slow"]) for r in whole])
        for name, pick in {
            "request": lambda tier: tier["ratio"],
            "decode": lambda tier: tier["decode"],
        }.items()
    }
    return {
        "candidates": len(whole),
        "spearman": correlations,
        "two_tiers_trials_per_hour": 3600 * len(whole) / spent,
        "slow_alone_trials_per_hour": 3600 * len(whole) / alone,
        "swap_ms": statistics.median(row["slow"]["swap_ms"] for row in whole),
        "capture_and_score_s": statistics.median(row["slow"]["capture_and_score_s"] for row in whole),
        "restore_s": statistics.median(row["restore_s"] for row in whole),
    }


def _spearman(x: list[float], y: list[float]) -> float:
    """Return the rank correlation, without scipy, which a bare GPU host lacks; ties are not expected."""
    sides = [[sorted(values).index(value) for value in values] for values in (x, y)]
    return statistics.correlation(*sides)


def told(verdict: Verdict) -> dict[str, Any]:
    """Return what matters of a verdict."""
    measured = verdict.slow or verdict.fast
    overall = measured.overall if measured else None
    return {
        "status": verdict.status.value,
        "reason": verdict.reason.value if verdict.reason else None,
        "detail": verdict.detail,
        "seconds": verdict.seconds,
        "ratio": [overall.low, overall.ratio, overall.high, overall.pairs] if overall else None,
        "checks": [f"{check.name}: {check.measured}" for check in verdict.checks],
    }


def main() -> None:
    """Run the parts one after another."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="llama-3.2-1b")
    parser.add_argument("--out", required=True)
    parser.add_argument("--candidates", type=int, default=30)
    parser.add_argument("--no-weights", action="store_true")
    parser.add_argument("--device", default="cuda", help="where the weights are drawn")
    parser.add_argument("--isl", type=int, default=256)
    parser.add_argument("--osl", type=int, default=256)
    parser.add_argument("--positions", type=int, default=2000)
    parser.add_argument("--levels", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--requests", type=int, default=4)
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        import random_llama

        model = Path(folder, args.shape)
        random_llama.write(model, args.shape, device=args.device, weights=not args.no_weights)
        study = Study(args, str(model))
        with study.engine:
            study.baseline()
            ranked = study.trials(args.candidates)
            best = ranked[0][1]
            parts: list[Callable[[], Any]] = [lambda: study.served(best)]
            if not args.no_weights:
                parts.append(lambda: study.judged(best))
            for part in (*parts, study.restart):
                study.attempt(part)
    if "errors" in study.found:
        raise SystemExit("\n".join(study.found["errors"]))


if __name__ == "__main__":
    main()
