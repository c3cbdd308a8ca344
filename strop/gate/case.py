"""What a check looks at: one candidate on one tier, what it answered, what was timed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from strop.config import Policy
from strop.core import Candidate, Tier, Workload
from strop.engine.contract import Array, Batch, Engine, Scored, Timed
from strop.gate.evidence import SpeedDecision
from strop.gate.exam import Exam
from strop.gate.numerics import Evidence, observe_batch

__all__ = ["Answer", "Case"]


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of a candidate beside those of the reference and the baseline."""

    number: int
    """Of the question in its exam."""
    question: Batch
    scored: Scored
    reference: Sequence[Array]
    """Of the bit-exact policy: the baseline's, run again."""
    baseline: Sequence[Array]


@dataclass(slots=True)
class Case:
    """Filled in as the judgement goes on."""

    engine: Engine
    candidate: Candidate
    policy: Policy
    jail: tuple[str, ...]
    """Isolation layers that hold around the candidate."""
    rng: random.Random
    """The judge's own; follows from a secret and the candidate's frozen hash."""
    trusted: bool = False
    """Whether the user vouches for the code, or it is strop's own."""
    tier: Tier = Tier.FAST
    held_out: bool = False
    """The final judgement, on text that no search has seen."""
    exam: Exam = field(default_factory=Exam)
    answer: Answer | None = None
    """The newest."""
    kept: dict[int, list[Array]] = field(default_factory=dict)
    """Outputs for the questions that are asked again."""
    evidence: Evidence = field(default_factory=Evidence)
    """Errors of the candidate and of the baseline, of every row of the exam."""
    workload: Workload | None = None
    decision: SpeedDecision | None = None
    runs: list[Timed] = field(default_factory=list)
    time_again: Callable[[int], list[Timed]] | None = None
    """Race so many more rounds, each pair beside a fresh clean worker, where suspicion needs proof."""
    floor_ms: float = 0.0
    """The least time of a decode step, or of a module's call, in the deployment's precision."""
    floor_again: Callable[[], float] | None = None
    """Measure the machine once more and return the floor by the best that it ever did."""

    def on(self, tier: Tier, exam: Exam) -> Case:
        """Return the same case on a tier, with nothing known there yet."""
        return replace(self, tier=tier, exam=exam, answer=None, kept={}, evidence=Evidence(), runs=[])

    @property
    def current(self) -> Answer:
        """The answer that is looked at."""
        assert self.answer is not None
        return self.answer

    def take(self) -> None:
        """Add the current answer to the evidence. Only what is asked again is kept whole.

        Raises:
            Fault: nonfinite or shape.
        """
        found = self.current
        if found.number in (0, self.exam.shortest):
            self.kept[found.number] = found.scored.outputs
        if not self.exam.bit_exact:
            outputs = found.scored.outputs
            observe_batch(self.evidence, found.question, found.reference, found.baseline, outputs)
