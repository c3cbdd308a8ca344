"""What was timed is what is checked: outputs of timed runs, computed again elsewhere.

A candidate that is fast in the timed run by choosing other tokens, fewer layers or stale state
shows a regret: the baseline's best logit minus its logit for the token that was chosen.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from strop.core import Fault, Reason, Tier
from strop.engine.contract import Array, Batch, Engine, Role, Timed
from strop.gate import numerics, quality
from strop.gate.case import Case

__all__ = ["demand", "regrets"]

_LEAST = 12
"""Runs that are looked at during a search, which ones is drawn after the fact; in the final
judgement it is all of them."""
_AS_GOOD = 4.0
"""A token whose logit is within so many times the baseline's own noise of the best is as good."""


def demand(case: Case) -> str:
    """Have a process that never ran a candidate judge what was timed.

    Raises:
        Fault: numerics, quality, shape or dtype.
    """
    count = len(case.runs) if case.held_out else min(_LEAST, len(case.runs))
    chosen = case.rng.sample(case.runs, count)
    if chosen[0].batch.prompts:
        return _tokens(case, chosen)
    return _outputs(case, chosen)


def _tokens(case: Case, runs: Sequence[Timed]) -> str:
    found = [regrets(case.engine, case.tier, run.batch, run.timing.tokens) for run in runs]
    values = np.concatenate(found)
    noise = float(case.evidence.joined("noise").max(initial=0.0))
    text = f"worst regret {values.max():.3g} of {_AS_GOOD * noise:.3g} in {values.size} tokens"
    wrong = float((values > _AS_GOOD * noise).mean())
    if quality.changes_precision(case):
        least = case.exam.thresholds.quality_agreement
        allowed = 1 - least + 3 * np.sqrt(least * (1 - least) / values.size)
        if wrong > allowed:
            raise Fault(Reason.QUALITY, f"{wrong:.1%} of the timed tokens are others: {text}")
    elif wrong:
        raise Fault(Reason.NUMERICS, f"tokens of the timed run are not the model's: {text}")
    return f"{text}, {len(runs)} of {len(case.runs)} runs"


def regrets(engine: Engine, tier: Tier, batch: Batch, tokens: Array) -> npt.NDArray[np.float64]:
    """Return the regret of every token, shape (batch * n,), under the untouched baseline's logits.

    Args:
        engine: the engine.
        tier: that was timed.
        batch: its `forced` holds what the judge had fed after the prompt, if anything.
        tokens: int64, shape (batch, n): the prefill's greedy token, then the steps'.
    """
    fed = batch.forced or [row[:1] for row in tokens.tolist()]
    said = tokens.tolist()
    # The last token is chosen by the row before it, so it need not be fed.
    texts = tuple(
        (*p, *f[:1], *row[1:-1]) if len(row) > 1 else p
        for p, f, row in zip(batch.prompts, fed, said, strict=True)
    )
    found = []
    logits = engine.score(Batch(prompts=texts), Role.BASELINE, tier).outputs
    for prompt, rows, row in zip(batch.prompts, logits, said, strict=True):
        tail = rows[len(prompt) - 1 :].astype(np.float64)
        found.append(tail.max(-1) - tail[np.arange(len(row)), row])
    return np.concatenate(found)


def _outputs(case: Case, runs: Sequence[Timed]) -> str:
    evidence = numerics.Evidence()
    for run in runs:
        baseline = case.engine.score(run.batch, Role.BASELINE).outputs
        outputs = run.timing.outputs
        if [a.shape for a in outputs] != [b.shape for b in baseline]:
            raise Fault(Reason.SHAPE, f"timed outputs of shape {[a.shape for a in outputs]}")
        role = Role.BASELINE if case.exam.bit_exact else Role.REFERENCE
        second = case.engine.score(run.batch, role).outputs
        if case.exam.bit_exact:
            check = numerics.bit_exact(baseline, second, outputs)
            if not check.passed:
                raise Fault(Reason.NUMERICS, f"outputs of a timed call: {check.measured}")
        else:
            numerics.observe_batch(evidence, run.batch, second, baseline, list(outputs))
    if not case.exam.bit_exact:
        for check in numerics.judge(evidence, case.exam.thresholds):
            if not check.passed:
                raise Fault(Reason.NUMERICS, f"outputs of timed calls: {check.name}: {check.measured}")
    return f"{len(runs)} of {len(case.runs)} timed calls checked again"
