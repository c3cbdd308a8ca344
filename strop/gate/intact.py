"""What must not change once a forward pass has returned: its inputs, and its outputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from strop.core import Fault, Reason
from strop.engine.contract import Array
from strop.gate.case import Case

__all__ = ["inputs", "outputs"]


def inputs(case: Case) -> str:
    """Demand that the inputs are what was sent.

    Raises:
        Fault: mutated_input.
    """
    question, now = case.current.question, case.current.scored.inputs
    sent = question.inputs or [np.array(prompt, np.int64) for prompt in question.prompts]
    if now is not None and not _same(sent, now):
        raise Fault(Reason.MUTATED_INPUT, "the forward pass wrote to its inputs")
    return "unchanged"


def outputs(case: Case) -> str:
    """Demand that nobody writes to the outputs after they were returned.

    Raises:
        Fault: late_write.
    """
    scored = case.current.scored
    if scored.later is not None and not _same(scored.outputs, scored.later):
        raise Fault(Reason.LATE_WRITE, "the outputs changed after they were returned")
    return "the same when read again 50 ms later"


def _same(first: Sequence[Array], second: Sequence[Array]) -> bool:
    return [a.tobytes() for a in first] == [b.tobytes() for b in second]
