"""The nouns. Records that cannot lie: which numbers one may carry follows from its status.

Nothing here does any work and nothing here imports the rest of strop.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = [
    "BASELINE_ID",
    "Candidate",
    "Check",
    "Cluster",
    "EngineGone",
    "Fault",
    "Fingerprint",
    "Guards",
    "Inconclusive",
    "Interval",
    "Measurement",
    "NumericsPolicy",
    "Pair",
    "Param",
    "Phase",
    "Proposal",
    "Reason",
    "Status",
    "StropError",
    "Target",
    "Tier",
    "TokenSource",
    "Trial",
    "Verdict",
    "Version",
    "Workload",
]

BASELINE_ID = "baseline"
"""The id under which the model's own, unchanged forward pass is known."""


class StropError(Exception):
    """A mistake the user can mend. The message is one line: what is wrong and what to do."""


class EngineGone(StropError):
    """The engine died and could not be restarted; nothing that was recorded is lost."""


class Status(StrEnum):
    """How a judgement ended."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"


class Reason(StrEnum):
    """Why a candidate was refused. A closed set: a new reason is a change of the protocol."""

    NOT_ADMITTED = "not_admitted"
    LOAD_ERROR = "load_error"
    CAPTURE_ERROR = "capture_error"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    OOM = "oom"
    SHAPE = "shape"
    DTYPE = "dtype"
    NONFINITE = "nonfinite"
    NUMERICS = "numerics"
    QUALITY = "quality"
    NONDETERMINISTIC = "nondeterministic"
    MUTATED_INPUT = "mutated_input"
    LATE_WRITE = "late_write"
    FASTER_THAN_PHYSICS = "faster_than_physics"
    NOT_FASTER = "not_faster"
    SLO_REGRESSION = "slo_regression"
    HELD_OUT_REGRESSION = "held_out_regression"


class Tier(StrEnum):
    """FAST runs the first K layers; SLOW runs all layers on the replayed traffic."""

    FAST = "fast"
    SLOW = "slow"


class Phase(StrEnum):
    """What one timed exchange with the engine does. CALL is one forward of a non-LLM module."""

    PREFILL = "prefill"
    DECODE = "decode"
    CALL = "call"


class TokenSource(StrEnum):
    """Where the measured tokens come from; synthetic ones are labelled in every record."""

    REAL = "real"
    SYNTHETIC = "synthetic"


class Fault(Exception):
    """A candidate's failure inside the engine: refuse it with `reason` and go on."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason.value}: {detail}")
        self.reason = reason
        self.detail = detail


class Inconclusive(Exception):
    """Neither passed nor failed: noise, too few pairs, or not worth the time. Says which."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """One kind of request in a workload. Lengths are in tokens."""

    id: int
    isl: int
    """Input sequence length of the medoid request."""
    osl: int
    """Output sequence length of the medoid request."""
    weight: float
    """Share of the workload's requests, 0 to 1."""
    concurrency: int = 1
    """Requests in flight together; the batch size at which the cluster is measured."""
    cached_prefix: int = 0
    """Tokens of the input that a prefix cache could already hold."""
    isl_range: tuple[int, int] = (0, 0)
    """p10 and p90 of ISL within the cluster."""
    osl_range: tuple[int, int] = (0, 0)
    """p10 and p90 of OSL within the cluster."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Weighted clusters of requests; `version` names this clustering in every measurement."""

    name: str
    version: str
    requests: int
    clusters: tuple[Cluster, ...]
    tokens: TokenSource = TokenSource.REAL

    def cluster(self, cluster_id: int) -> Cluster:
        """Return the cluster with this id.

        Raises:
            KeyError: no such cluster.
        """
        for cluster in self.clusters:
            if cluster.id == cluster_id:
                return cluster
        raise KeyError(cluster_id)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What must match for two measurements to be comparable."""

    engine: str
    device: str
    """Model name of the CPU or GPU."""
    cores: int
    threads: int
    dtype: str
    model_hash: str
    """SHA-256 over names, shapes, dtypes and bytes of the weights."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of python, torch, transformers, the driver: whatever changes kernels."""
    flags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Target:
    """Where the time of one cluster goes and how much of it physics demands. Times in ms."""

    cluster: int
    phase: Phase
    baseline_ms: float
    floor_ms: float

    @property
    def headroom(self) -> float:
        """How many times faster than the baseline the roofline floor is."""
        return self.baseline_ms / self.floor_ms if self.floor_ms > 0 else math.inf


@dataclass(frozen=True, slots=True)
class Guards:
    """Where a verified forward pass may run; anything else takes the original path."""

    device: str
    dtype: str
    max_batch: int
    """Largest batch that was verified; 0 for a module."""
    max_context: int
    """Longest prompt and output together that were verified, in tokens; 0 for a module."""
    shapes: tuple[tuple[int, ...], ...] = ()
    """Exact input shapes of a module; empty for a causal LM."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A rewrite of the forward pass: a content-addressed folder of text files."""

    files: Mapping[str, str]
    """Relative path to content; `forward.py` and `manifest.toml` are always there."""
    author: str = "unknown"
    parent: str = BASELINE_ID

    @property
    def id(self) -> str:
        """SHA-256 over the sorted paths and contents, as 64 hex digits."""
        digest = hashlib.sha256()
        for path in sorted(self.files):
            for part in (path.encode(), self.files[path].encode()):
                digest.update(len(part).to_bytes(8, "big"))
                digest.update(part)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Pair:
    """One interleaved comparison: both sides did the same work moments apart. Times in ns."""

    cluster: int
    baseline_ns: int
    candidate_ns: int
    baseline_first: bool

    def __post_init__(self) -> None:
        if self.baseline_ns <= 0 or self.candidate_ns <= 0:
            raise ValueError("a timed step takes more than no time")

    @property
    def log_ratio(self) -> float:
        """Natural log of baseline time over candidate time: above zero is faster."""
        return math.log(self.baseline_ns / self.candidate_ns)


@dataclass(frozen=True, slots=True)
class Interval:
    """A ratio of baseline time to candidate time (1.25 is 25 % faster) and its interval."""

    ratio: float
    low: float
    high: float
    pairs: int
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if not (0 < self.low <= self.ratio <= self.high and math.isfinite(self.high)):
            raise ValueError(f"not an interval: {self.low} <= {self.ratio} <= {self.high}")


@dataclass(frozen=True, slots=True)
class Measurement:
    """What the pairs of one tier say, for the whole workload and for each cluster."""

    tier: Tier
    workload_version: str
    tokens: TokenSource
    overall: Interval
    clusters: Mapping[int, Interval]
    e_value: float
    """Evidence against "not faster by delta" (a betting e-process); 1/alpha is significant."""
    swap_ms: float
    phases: Mapping[Phase, Interval] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NumericsPolicy:
    """Thresholds of the tolerance policy; see docs/decisions/0004-numerics.md."""

    version: str = "2"
    median_ratio: float = 1.25
    """Largest median e(C) over median e(B)."""
    tail_ratio: float = 1.5
    """Largest p99.9 of e(C) over p99.9 of e(B)."""
    worst_ratio: float = 4.0
    """Largest e(C) of any row over the largest e(B): no backdoor fits under a quantile."""
    kl_ratio: float = 1.5625
    """Largest mean KL(R||C) over mean KL(R||B), beyond 3 standard errors: the square of
    `median_ratio`, because KL grows with the square of the error."""
    kl_floor: float = 1e-9
    """Mean KL in nats that always passes: to tell two such distributions apart takes about
    1/KL, a billion, tokens."""
    perplexity: float = 0.001
    """Largest relative change of perplexity on the same text, either way."""
    quality_perplexity: float = 0.005
    """The same for a change of precision that the deployment opted in to."""
    quality_agreement: float = 0.97
    """Least share of greedy tokens that such a change may keep."""


@dataclass(frozen=True, slots=True)
class Check:
    """One named check of the judge and what it measured."""

    name: str
    passed: bool
    measured: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judge's word on one candidate; final once recorded."""

    candidate: str
    status: Status
    reason: Reason | None = None
    detail: str = ""
    checks: tuple[Check, ...] = ()
    fast: Measurement | None = None
    slow: Measurement | None = None
    jail: tuple[str, ...] = ()
    """Names of the isolation layers that held while the candidate ran."""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if (self.status is Status.FAILED) != (self.reason is not None):
            raise ValueError("a failed verdict has a reason, and only a failed one has")
        if self.status is Status.PASSED and self.slow is None:
            raise ValueError("a passed verdict carries its slow-tier measurement")
        if self.status is Status.PASSED and not all(check.passed for check in self.checks):
            raise ValueError("a passed verdict has no failed check")


Param = str | int | float | bool
"""One choice of a search."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A candidate that a search put forward; recorded before it is judged."""

    number: int
    """Counts from 0 within the run."""
    search: str
    """Which search: "rewrites", "flags", or the name of an agent."""
    candidate: str
    params: Mapping[str, Param]


@dataclass(frozen=True, slots=True)
class Trial:
    """A proposal and its verdict."""

    proposal: Proposal
    verdict: Verdict
    spent_s: float
    """Seconds that this search had spent when the verdict fell, this trial's included."""


@dataclass(frozen=True, slots=True)
class Version:
    """A candidate that may ship: what it is, what proved it, and where it may run."""

    deployment: str
    candidate: str
    fingerprint: Fingerprint
    guards: Guards
    confirmed: Measurement
    """The winner measured again on held-out prompts and fresh pairs."""

    @property
    def id(self) -> str:
        """The candidate's id: the content is the name."""
        return self.candidate
