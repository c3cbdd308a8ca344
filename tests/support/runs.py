"""Runs for tests of what people see: events of any state, in a real journal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from strop import config
from strop.core import (
    Candidate,
    Check,
    Cluster,
    Fingerprint,
    Guards,
    Interval,
    Measurement,
    Param,
    Phase,
    Proposal,
    Reason,
    Status,
    Target,
    Tier,
    TokenSource,
    Trial,
    Verdict,
    Version,
    Workload,
)
from strop.journal import Journal
from strop.run import Outcome, Run, Started

__all__ = [
    "CLUSTERS",
    "candidate",
    "failed",
    "judge",
    "measurement",
    "passed",
    "start",
    "trial",
    "version",
    "won",
]

CLUSTERS = (
    Cluster(0, 512, 128, 0.62, 4, 96, (310, 840), (64, 210)),
    Cluster(1, 1930, 41, 0.30, 2, 0, (1200, 2400), (12, 88)),
    Cluster(2, 58, 402, 0.08, 1, 0, (20, 110), (300, 620)),
)
FINGERPRINT = Fingerprint(
    engine="torch",
    device="Example CPU 9000",
    cores=2,
    threads=2,
    dtype="float32",
    model_hash="5e" * 32,
    versions={"python": "3.11.9", "torch": "2.13.0"},
    flags={"MKL_CBWR": "AVX2"},
)


def start(root: Path, **changes: object) -> Run:
    """A run that has begun: three clusters, four targets; `changes` go to `Started`."""
    deployment = config.Deployment(
        name="tiny",
        engine=config.Engine(model="smollm2"),
        traffic=config.Traffic(trace="t.csv", max_isl=2048),
        search=config.Search(budget_s=300.0),
    )
    values: dict[str, object] = {
        "deployment": deployment,
        "workload": Workload("code", "gmm-3-9f2e", 8819, CLUSTERS, TokenSource.REAL),
        "left_out": 1204,
        "fingerprint": FINGERPRINT,
        "jail": ("uid", "network", "no_new_privs"),
        "targets": (
            Target(0, Phase.DECODE, 41.2, 12.5),
            Target(1, Phase.PREFILL, 2210.0, 12.5),
            Target(1, Phase.DECODE, 38.0, 12.5),
            Target(2, Phase.DECODE, 30.5, 12.5),
        ),
        "bandwidth": 21.4e9,
        "layers": (6, 30),
    }
    return Run.of(Journal.open(root), Started(**{**values, **changes}))  # type: ignore[arg-type]


def candidate(tag: object) -> Candidate:
    """A candidate whose id follows from the tag."""
    return Candidate({"forward.py": f"# {tag}", "manifest.toml": ""}, "test")


def measurement(ratio: float, tier: Tier = Tier.SLOW, e_value: float = 4.2e5) -> Measurement:
    """A measurement around a ratio: its clusters and phases differ from it by a little."""

    def near(factor: float, pairs: int = 24) -> Interval:
        middle = ratio * factor
        return Interval(middle, middle * 0.975, middle * 1.03, pairs)

    clusters = {0: near(1.06), 1: near(0.91), 2: near(1.1)}
    return Measurement(
        tier=tier,
        workload_version="gmm-3-9f2e",
        tokens=TokenSource.REAL,
        overall=near(1.0, 60),
        clusters=clusters if tier is Tier.SLOW else {0: near(1.0)},
        e_value=e_value,
        swap_ms=11.4,
        phases={Phase.PREFILL: near(0.88), Phase.DECODE: near(1.07)},
    )


def passed(id: str, ratio: float, fast: float, seconds: float = 12.3) -> Verdict:
    """A verdict that passed."""
    checks = (
        Check("admission", True, "4 sources, 9120 bytes, same"),
        Check("error", True, "median e(C)/e(B) 1.02, p99.9 1.31, 812 positions"),
        Check("physics", True, "22.1 ms a step, floor 12.5 ms"),
    )
    return Verdict(
        id,
        Status.PASSED,
        checks=checks,
        fast=measurement(fast, Tier.FAST),
        slow=measurement(ratio),
        jail=("uid",),
        seconds=seconds,
    )


def failed(id: str, reason: Reason, detail: str, fast: float | None = None, seconds: float = 4.5) -> Verdict:
    """A verdict that failed."""
    measured = measurement(fast, Tier.FAST) if fast else None
    return Verdict(id, Status.FAILED, reason, detail, (), measured, None, ("uid",), seconds)


def judge(run: Run, search: str, params: Mapping[str, Param], verdict: Verdict) -> Trial:
    """Record a proposal and its verdict, as the loop does."""
    proposal = Proposal(run.proposals(), search, verdict.candidate, params)
    run.propose(proposal)
    trial = Trial(proposal, verdict, run.spent_s(search) + verdict.seconds)
    run.judged(trial)
    return trial


def trial(verdict: Verdict, number: int = 7, search: str = "rewrites", **params: Param) -> Trial:
    """A trial outside any run."""
    return Trial(Proposal(number, search, verdict.candidate, params), verdict, verdict.seconds)


def version(run: Run, id: str, ratio: float) -> Version:
    """A published version of the run's deployment."""
    guards = Guards("cpu", "float32", 4, 2488)
    return Version(run.started.deployment.name, id, FINGERPRINT, guards, measurement(ratio))


def won(root: Path) -> Run:
    """A finished run: seven rewrites, three flag candidates, one confirmed winner."""
    run = start(root)
    ids = {tag: run.journal.put_candidate(candidate(tag)) for tag in "abcdefghij"}
    hostile = "error: <script>alert('x')</script> & \x1b[31mred\x1b[0m, e(C)/e(B) 9.7"
    no, whole = Reason.NOT_FASTER, "whole"
    unsure = Verdict(
        ids["f"],
        Status.INCONCLUSIVE,
        detail="1.60x on the fast tier, the best is 1.75x",
        fast=measurement(1.6, Tier.FAST),
        seconds=6.0,
    )
    rows: list[tuple[str, dict[str, Param], Verdict]] = [
        ("rewrites", {"linear": "onednn2", "threads": 0}, passed(ids["a"], 1.22, 1.19)),
        ("rewrites", {"scope": whole, "linear": "onednn2"}, passed(ids["b"], 1.61, 1.5)),
        ("rewrites", {"scope": whole, "mlp": "fused"}, failed(ids["c"], Reason.NUMERICS, hostile)),
        ("rewrites", {"scope": whole, "linear": "packed2"}, passed(ids["d"], 1.86, 1.75)),
        ("rewrites", {"scope": whole, "head": "<b>int8</b>"}, failed(ids["e"], no, "slow", 0.97)),
        ("rewrites", {"scope": whole, "qkv": "fused"}, unsure),
        ("rewrites", {"scope": whole, "linear": "packed"}, passed(ids["g"], 1.74, 1.71, 90.0)),
        ("flags", {"compile": "default"}, passed(ids["h"], 1.21, 1.18, 61.0)),
        ("flags", {"attention": "eager"}, failed(ids["i"], no, "0.94x", 0.94)),
        ("flags", {"threads": 1}, failed(ids["j"], Reason.TIMEOUT, "no answer in 60 s")),
    ]
    for search, params, verdict in rows:
        judge(run, search, params, verdict)
    final = passed(ids["d"], 1.83, 1.75)
    checks = (Check("kl", True, "mean KL 1.1e-9 against 1.0e-9, 20,000 positions"),)
    run.confirmed(Verdict(ids["d"], Status.PASSED, None, "", checks, None, final.slow, ("uid",), 140.0))
    run.finish(Outcome(ids["d"], "confirmed on held-out prompts and fresh pairs", ids["h"]))
    return run
