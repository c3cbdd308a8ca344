"""Whether pairs prove a gain: evidence for the whole workload, intervals for every part of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from strop.config import Policy
from strop.core import Fault, Inconclusive, Interval, Pair, Reason, Workload
from strop.gate.case import Case
from strop.gate.evidence import SpeedDecision
from strop.stats import EProcess, median_interval

__all__ = ["conclude", "decide", "demand", "interval", "keep_going"]

_LEAST_ROUNDS = 6
"""Fewer rounds carry no bootstrap interval."""


def decide(pairs: Sequence[Pair], workload: Workload, policy: Policy) -> SpeedDecision:
    """Sum up pairs that came in rounds of one pair a cluster.

    An incomplete last round counts for its clusters' intervals, not for the evidence.
    """
    logs = _round_logs(pairs, workload)
    faster, slower = _evidence(logs, policy)
    by_cluster = {c.id: [p for p in pairs if p.cluster == c.id] for c in workload.clusters}
    return SpeedDecision(
        overall=_interval(logs),
        clusters={id: interval(found) for id, found in by_cluster.items() if found},
        e_value=faster,
        futility=slower,
    )


def demand(case: Case) -> str:
    """Demand a proven gain and no proven loss in any cluster. Raises what `conclude` raises."""
    assert case.decision is not None
    return conclude(case.decision, case.policy)


def conclude(decision: SpeedDecision, policy: Policy) -> str:
    """Return what the evidence says for a gain.

    Raises:
        Fault: not_faster.
        Inconclusive: neither a gain nor the lack of one is proven.
    """
    overall = decision.overall
    text = f"{overall.ratio:.3f}x ({overall.low:.3f} to {overall.high:.3f}), e-value {decision.e_value:.3g}"
    for id, found in decision.clusters.items():
        if found.high < 1 - policy.max_cluster_loss:
            worse = f"cluster {id} is slower: {found.ratio:.3f}x (at most {found.high:.3f})"
            raise Fault(Reason.NOT_FASTER, f"{worse}; overall {text}")
    proven = decision.e_value >= 1 / policy.alpha
    if proven and overall.ratio > math.exp(policy.delta):
        return f"{text}, {overall.pairs} rounds"
    if decision.futility >= 1 / policy.alpha or overall.high < math.exp(policy.delta):
        raise Fault(Reason.NOT_FASTER, text)
    raise Inconclusive(f"not proven within {overall.pairs} rounds: {text}")


def keep_going(pairs: Sequence[Pair], workload: Workload, policy: Policy) -> bool:
    """Say whether more pairs can change the decision. The evidence is valid at any stop."""
    logs = _round_logs(pairs, workload)
    if len(logs) < _LEAST_ROUNDS:
        return True
    return max(_evidence(logs, policy)) < 1 / policy.alpha


def interval(pairs: Sequence[Pair]) -> Interval:
    """Return the median ratio of some pairs and its interval."""
    return _interval([pair.log_ratio for pair in pairs])


def _evidence(logs: Sequence[float], policy: Policy) -> tuple[float, float]:
    """Return the e-values for a gain above delta, and for one below what is worth the while."""
    faster, slower = EProcess(policy.delta), EProcess(-policy.worth)
    return faster.update(*logs), slower.update(*(-x for x in logs))


def _interval(logs: Sequence[float]) -> Interval:
    ratio, low, high = median_interval(logs)
    return Interval(ratio, low, high, len(logs))


def _round_logs(pairs: Sequence[Pair], workload: Workload) -> list[float]:
    """Return per complete round the log ratio of the traffic's whole time on either side."""
    weights = {cluster.id: cluster.weight for cluster in workload.clusters}
    size, logs = len(weights), []
    for start in range(0, len(pairs) - size + 1, size):
        part = pairs[start : start + size]
        baseline = sum(weights[p.cluster] * p.baseline_ns for p in part)
        candidate = sum(weights[p.cluster] * p.candidate_ns for p in part)
        logs.append(math.log(baseline / candidate))
    return logs
