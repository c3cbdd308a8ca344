"""What was timed is what is checked: tokens of timed runs, scored again by the untouched baseline.

A candidate that is fast in the timed run by choosing other tokens, fewer layers or stale state
shows a regret: the baseline's best logit minus its logit for the token that was chosen.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from strop.core import Check, Fault, Reason, Tier
from strop.engine.contract import Array, Batch, Engine, Role

__all__ = ["regret", "rescore"]

_SHARE = 0.25
"""Share of the timed runs that are scored again even when both sides agree."""


def rescore(
    engine: Engine,
    tier: Tier,
    runs: Sequence[tuple[Batch, Array, Array]],
    noise: float,
    rng: random.Random,
) -> Check:
    """Score timed runs again in a process that never ran a candidate.

    Args:
        engine: the engine.
        tier: the tier that was timed.
        runs: (batch, baseline tokens, candidate tokens) of each timed pair; tokens are int64 of
            shape (batch, 1 + steps). Every run whose sides differ is scored, and a random share
            of the others, drawn after the fact.
        noise: largest |B - R| of a logit; a token within 4 times that of the best is as good.
        rng: the judge's own.

    Raises:
        Fault: numerics.
    """
    chosen = [run for run in runs if (run[1] != run[2]).any() or rng.random() < _SHARE]
    worst, tokens = 0.0, 0
    for batch, _, candidate in chosen or list(runs[:1]):
        worst = max(worst, regret(engine, tier, batch, candidate))
        tokens += candidate.size
    check = Check(
        "timed_tokens",
        worst <= 4 * noise,
        f"worst regret {worst:.3g} of {4 * noise:.3g} in {tokens} tokens",
    )
    if not check.passed:
        raise Fault(Reason.NUMERICS, f"tokens of the timed run are not the model's: {check.measured}")
    return check


def regret(engine: Engine, tier: Tier, batch: Batch, tokens: Array) -> float:
    """Return the largest regret of `tokens`, shape (batch, n), under the baseline's logits."""
    said = [tuple(map(int, row)) for row in tokens]
    # The last token is chosen by the row before it, so it need not be fed.
    prompts = tuple(p + row[:-1] for p, row in zip(batch.prompts, said, strict=True))
    worst = 0.0
    for logits, row in zip(engine.score(Batch(prompts=prompts), Role.BASELINE, tier), said, strict=True):
        tail = logits[-len(row) :].astype(np.float64)
        worst = max(worst, float((tail.max(-1) - tail[np.arange(len(row)), row]).max()))
    return worst
