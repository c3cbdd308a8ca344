"""What the events of a run add up to: who won, who was refused, what each search found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from strop.core import Measurement, Phase, Reason, Status, Trial, Verdict
from strop.run import Outcome, Run, Started

__all__ = ["Digest", "State"]


class State(StrEnum):
    """Where a run stands."""

    RUNNING = "running"
    """No last event: it still runs, or was stopped and can go on."""
    WON = "won"
    NOTHING = "nothing"
    """Finished, and no candidate was proven faster."""


@dataclass(frozen=True, slots=True)
class Digest:
    """One reading of a run; later events do not change it."""

    run: str
    started: Started
    outcome: Outcome | None
    trials: tuple[Trial, ...]
    confirmations: Mapping[str, Verdict]

    @classmethod
    def of(cls, run: Run) -> Digest:
        """Read a run's events once."""
        outcome, trials = run.outcome, tuple(run.trials())
        return cls(run.id, run.started, outcome, trials, run.confirmations())

    @property
    def state(self) -> State:
        """Where the run stands."""
        if self.outcome is None:
            return State.RUNNING
        return State.NOTHING if self.outcome.winner is None else State.WON

    @property
    def winner(self) -> str | None:
        """Id of the winner; of the first confirmed candidate while the run is not finished."""
        if self.outcome is not None:
            return self.outcome.winner
        passed = (v for v in self.confirmations.values() if v.status is Status.PASSED)
        return next((verdict.candidate for verdict in passed), None)

    @property
    def confirmation(self) -> Verdict | None:
        """The winner's verdict on held-out prompts and fresh pairs."""
        return self.confirmations.get(self.winner) if self.winner else None

    @property
    def confirmed(self) -> Measurement | None:
        """What the winner did there."""
        verdict = self.confirmation
        return verdict.slow if verdict and verdict.status is Status.PASSED else None

    @property
    def winning_trial(self) -> Trial | None:
        """The winner as the search saw it."""
        return next((t for t in self.trials if t.proposal.candidate == self.winner), None)

    @property
    def searches(self) -> tuple[str, ...]:
        """Names of the searches, in the order they began."""
        return tuple(dict.fromkeys(trial.proposal.search for trial in self.trials))

    @property
    def refused(self) -> Counter[Reason]:
        """How many candidates were refused, by reason, the most frequent first."""
        return Counter(t.verdict.reason for t in self.trials if t.verdict.reason)

    @property
    def is_module(self) -> bool:
        """Whether what was rewritten is no language model."""
        return any(target.phase is Phase.CALL for target in self.started.targets)

    def of_search(self, search: str) -> list[Trial]:
        """Return a search's trials."""
        return [trial for trial in self.trials if trial.proposal.search == search]

    def best(self, search: str | None = None) -> Trial | None:
        """Return the passed trial with the highest low end, of one search or of all."""
        found = [
            (trial.verdict.slow.overall.low, trial)
            for trial in self.trials
            if trial.verdict.status is Status.PASSED and trial.verdict.slow
            if search in (None, trial.proposal.search)
        ]
        return max(found, key=lambda pair: pair[0])[1] if found else None

    def spent_s(self, search: str) -> float:
        """Return the seconds that a search spent on judging."""
        return sum(trial.verdict.seconds for trial in self.of_search(search))

    def budget_s(self, search: str) -> float:
        """Return the seconds that a search was given."""
        return self.started.deployment.search.budget_for_s(search)
