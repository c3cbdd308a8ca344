"""Whether a candidate's outputs are as good as the baseline's. Pure arithmetic on output bytes.

R is the reference (float64 where the model is small), B the baseline, C the candidate;
e(X) = ||X - R|| / ||R|| per row of logits. Every budget is measured against R, never against the
version before, so that errors cannot ratchet. Thresholds are a policy with a version.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from strop.core import Check, Fault, NumericsPolicy, Reason
from strop.engine.contract import Batch

__all__ = [
    "POLICY",
    "Evidence",
    "agreement",
    "bit_exact",
    "divergence",
    "error_ratios",
    "errors",
    "greedy",
    "judge",
    "observe",
    "observe_batch",
    "perplexity",
]

_SLAB = 64
"""Rows handled at once: keeps the float64 copies of a large vocabulary small."""

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[np.generic]


POLICY = NumericsPolicy()


@dataclass(slots=True)
class Evidence:
    """What the rows seen so far say; one entry a row (a teacher-forced position)."""

    error_b: list[Floats] = field(default_factory=list)
    error_c: list[Floats] = field(default_factory=list)
    kl_b: list[Floats] = field(default_factory=list)
    kl_c: list[Floats] = field(default_factory=list)
    margin: list[Floats] = field(default_factory=list)
    """R's top-1 logit minus its top-2."""
    noise: list[Floats] = field(default_factory=list)
    """Largest |B - R| of the row."""
    agrees: list[npt.NDArray[np.bool_]] = field(default_factory=list)
    nll_b: list[Floats] = field(default_factory=list)
    nll_c: list[Floats] = field(default_factory=list)

    @property
    def positions(self) -> int:
        """Rows seen."""
        return sum(map(len, self.error_b))

    def joined(self, name: str) -> Floats:
        """Return one quantity over all rows."""
        parts = getattr(self, name)
        return np.concatenate(parts) if parts else np.zeros(0)


def observe(
    evidence: Evidence,
    reference: Array,
    baseline: Array,
    candidate: Array,
    targets: Sequence[int] = (),
) -> None:
    """Add rows of logits, each (rows, vocab), in any float dtype; all math is float64.

    Args:
        evidence: grows in place.
        reference: R.
        baseline: B, from a process that never ran a candidate.
        candidate: C.
        targets: the real next tokens of the first len(targets) rows, for perplexity.

    Raises:
        Fault: nonfinite or shape.
    """
    if candidate.shape != baseline.shape:
        raise Fault(Reason.SHAPE, f"outputs of shape {candidate.shape}, not {baseline.shape}")
    if not np.isfinite(candidate).all():
        bad = int((~np.isfinite(candidate)).any(-1).sum())
        raise Fault(Reason.NONFINITE, f"{bad} of {len(candidate)} rows hold NaN or infinity")
    slabs = [slice(start, start + _SLAB) for start in range(0, len(candidate), _SLAB)]
    with ThreadPoolExecutor() as pool:
        parts = list(pool.map(lambda rows: _rows(reference, baseline, candidate, targets, rows), slabs))
    for part in parts:
        for name, values in part.items():
            getattr(evidence, name).append(values)


def _rows(
    reference: Array, baseline: Array, candidate: Array, targets: Sequence[int], rows: slice
) -> dict[str, Array]:
    """Return every quantity of `Evidence` for some of the rows."""
    r, b, c = (x[rows].astype(np.float64) for x in (reference, baseline, candidate))
    norm = np.linalg.norm(r, axis=-1) + np.finfo(np.float64).tiny
    top = np.partition(r, -2, axis=-1)[:, -2:]
    log_r, log_b, log_c = map(_log_softmax, (r, b, c))
    p = np.exp(log_r)
    said = list(targets[rows])
    index = np.arange(len(said))
    return {
        "error_b": np.linalg.norm(b - r, axis=-1) / norm,
        "error_c": np.linalg.norm(c - r, axis=-1) / norm,
        "noise": np.abs(b - r).max(-1),
        "margin": top[:, 1] - top[:, 0],
        "agrees": c.argmax(-1) == r.argmax(-1),
        "kl_b": (p * (log_r - log_b)).sum(-1),
        "kl_c": (p * (log_r - log_c)).sum(-1),
        "nll_b": -log_b[index, said],
        "nll_c": -log_c[index, said],
    }


def observe_batch(
    evidence: Evidence,
    batch: Batch,
    reference: Sequence[Array],
    baseline: Sequence[Array],
    candidate: Sequence[Array],
) -> None:
    """Add every output of a batch; a causal LM's own text labels its rows. Raises what `observe` does."""
    forced = batch.forced or ((),) * len(candidate)
    for i, (r, b, c) in enumerate(zip(reference, baseline, candidate, strict=True)):
        text = (batch.prompts[i] + forced[i])[1:] if batch.prompts else ()
        observe(evidence, _as_rows(r), _as_rows(b), _as_rows(c), text)


def _as_rows(array: Array) -> Array:
    """View any output as rows of its last dimension."""
    return array.reshape(-1, array.shape[-1]) if array.ndim else array.reshape(1, 1)


def _log_softmax(x: Floats) -> Floats:
    shifted = x - x.max(-1, keepdims=True)
    result: Floats = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return result


def judge(evidence: Evidence, policy: NumericsPolicy = POLICY) -> list[Check]:
    """Return every test of a candidate that declares the same precision, passed or not."""
    return [
        errors(evidence, policy),
        divergence(evidence, policy),
        greedy(evidence),
        perplexity(evidence, policy.perplexity),
    ]


def bit_exact(baseline: Iterable[Array], again: Iterable[Array], candidate: Iterable[Array]) -> Check:
    """Compare with the baseline's very bits, or its own noise where it does not repeat itself."""
    unequal, noise, worst = 0, 0.0, 0.0
    for b, b2, c in zip(baseline, again, candidate, strict=True):
        if b.shape != c.shape or b.dtype != c.dtype:
            text = f"{c.dtype}{c.shape} where {b.dtype}{b.shape} was expected"
            return Check("bit_exact", False, text)
        unequal += int(np.count_nonzero(_bits(b) != _bits(c)))
        noise = max(noise, _distance(b, b2))
        worst = max(worst, _distance(b, c))
    if noise == 0.0:
        return Check("bit_exact", unequal == 0, f"{unequal} bytes differ from the baseline's")
    text = f"baseline is not deterministic: its noise is {noise:.3g}, the candidate's {worst:.3g}"
    return Check("bit_exact", worst <= noise, text)


def _bits(array: Array) -> npt.NDArray[np.uint8]:
    return np.frombuffer(np.ascontiguousarray(array).tobytes(), dtype=np.uint8)


def _distance(a: Array, b: Array) -> float:
    if not a.size or (_bits(a) == _bits(b)).all():
        return 0.0
    return float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max())


def errors(evidence: Evidence, policy: NumericsPolicy) -> Check:
    """Compare e(C) with e(B): median, tail, and the worst row."""
    medians, tails, worst = error_ratios(evidence)
    passed = medians <= policy.median_ratio and tails <= policy.tail_ratio and worst <= policy.worst_ratio
    found = (
        ("median", medians, policy.median_ratio),
        ("p99.9", tails, policy.tail_ratio),
        ("worst", worst, policy.worst_ratio),
    )
    text = ", ".join(f"{name} {value:.2f} of {most:.3g}" for name, value, most in found)
    return Check("error", passed, f"e(C)/e(B): {text}, {evidence.positions} positions")


def error_ratios(evidence: Evidence) -> tuple[float, float, float]:
    """Return e(C)/e(B) of the medians, of the p99.9 and of the worst rows."""
    b, c = evidence.joined("error_b"), evidence.joined("error_c")
    # A baseline that hits the reference exactly still has its dtype's rounding as a budget.
    least = float(np.finfo(np.float32).eps) / 4
    # A quantile with fewer than 10 positions above it says nothing about the tail.
    tail = min(0.999, 1 - 10 / len(b)) if len(b) > 10 else 0.5
    at = (0.5, tail, 1.0)
    medians, tails, worst = (float(np.quantile(c, q)) / max(float(np.quantile(b, q)), least) for q in at)
    return medians, tails, worst


def divergence(evidence: Evidence, policy: NumericsPolicy) -> Check:
    """Compare the mean KL to the reference with the baseline's."""
    b, c = evidence.joined("kl_b"), evidence.joined("kl_c")
    bound = policy.kl_ratio * b.mean() + 3 * (c - policy.kl_ratio * b).std() / np.sqrt(len(b))
    passed = bool(c.mean() <= max(bound, policy.kl_floor))
    return Check("divergence", passed, f"mean KL(R||C) {c.mean():.3g}, KL(R||B) {b.mean():.3g} nats")


def greedy(evidence: Evidence) -> Check:
    """Count greedy tokens that differ though the reference is sure of them."""
    sure = evidence.joined("margin") > 2 * evidence.joined("noise").max(initial=0.0)
    agrees = evidence.joined("agrees").astype(bool)
    wrong = int((sure & ~agrees).sum())
    return Check("greedy", wrong == 0, f"{wrong} of {int(sure.sum())} sure greedy tokens differ")


def agreement(evidence: Evidence, policy: NumericsPolicy) -> Check:
    """Compare the share of greedy tokens kept with what a change of precision must keep."""
    agrees = evidence.joined("agrees")
    share = float(agrees.mean()) if agrees.size else 0.0
    return Check("greedy", share >= policy.quality_agreement, f"{share:.2%} greedy tokens kept")


def perplexity(evidence: Evidence, limit: float) -> Check:
    """Compare the change of perplexity on the exam's text with `limit`, either way."""
    b, c = evidence.joined("nll_b"), evidence.joined("nll_c")
    if not b.size:
        return Check("perplexity", True, "no text to score")
    change = float(np.expm1(c.mean() - b.mean()))
    return Check("perplexity", abs(change) <= limit, f"{change:+.4%} on {b.size} tokens of text")
