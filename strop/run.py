"""A run: one turn of the loop for one deployment, as its events tell it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from strop.config import Deployment
from strop.core import Fingerprint, NumericsPolicy, Proposal, Status, Target, Trial, Verdict, Workload

if TYPE_CHECKING:
    from strop.journal import Journal

__all__ = ["Outcome", "Run", "Started"]


@dataclass(frozen=True, slots=True)
class Started:
    """The first event of a run: everything its numbers depend on."""

    deployment: Deployment
    workload: Workload
    left_out: int
    """Requests of the trace that were longer than the deployment's limits."""
    fingerprint: Fingerprint
    jail: tuple[str, ...]
    targets: tuple[Target, ...]
    bandwidth: float
    """Measured read bandwidth, bytes/s."""
    layers: tuple[int, int]
    """K of the fast tier, and all."""
    thresholds: Mapping[str, NumericsPolicy] = field(default_factory=dict)
    """Bounds of the numerics by exam, calibrated on this baseline."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The last event of a run."""

    winner: str | None
    """Id of the version that was promoted; None when nothing beat what was live."""
    reason: str
    flags_best: str | None
    """Best candidate of the flag search."""


class Run:
    """Appends a run's events and replays them; the journal is the only state."""

    def __init__(self, journal: Journal, id: str) -> None:
        self.journal = journal
        self.id = id

    @classmethod
    def of(cls, journal: Journal, started: Started) -> Run:
        """Return the unfinished run of the same deployment, workload and machine, or a new one."""
        state = (started.deployment, started.workload, started.fingerprint)
        digest = hashlib.sha256(msgspec.json.encode(state, order="deterministic")).hexdigest()[:10]
        prefix = f"{started.deployment.name}-{digest}-"
        runs = [e.run for e in journal.events(kind="run_started") if e.run.startswith(prefix)]
        if runs and not journal.events(run=runs[-1], kind="run_finished"):
            return cls(journal, runs[-1])
        run = cls(journal, f"{prefix}{len(runs) + 1}")
        run.journal.append("run_started", started, run=run.id, key="")
        return run

    @classmethod
    def latest(cls, journal: Journal, deployment: str) -> Run | None:
        """Return the deployment's newest run, finished or not."""
        runs = cls.all(journal, deployment)
        return runs[-1] if runs else None

    @classmethod
    def all(cls, journal: Journal, deployment: str) -> list[Run]:
        """Return a deployment's runs, oldest first."""
        starts = journal.events(kind="run_started")
        return [cls(journal, e.run) for e in starts if e.decode(Started).deployment.name == deployment]

    @property
    def started(self) -> Started:
        """The run's first event."""
        return self.journal.events(run=self.id, kind="run_started")[0].decode(Started)

    @property
    def outcome(self) -> Outcome | None:
        """The run's last event, once there is one."""
        events = self.journal.events(run=self.id, kind="run_finished")
        return events[0].decode(Outcome) if events else None

    def propose(self, proposal: Proposal) -> None:
        """Record a proposal; the candidate's blob must already be there."""
        self.journal.append("proposed", proposal, run=self.id, key=proposal.candidate, once=True)

    def judged(self, trial: Trial) -> None:
        """Record a verdict: one a candidate, ever."""
        self.journal.append("judged", trial, run=self.id, key=trial.proposal.candidate)

    def confirmed(self, verdict: Verdict) -> None:
        """Record what a winner did on held-out prompts and fresh pairs."""
        self.journal.append("confirmed", verdict, run=self.id, key=verdict.candidate)

    def finish(self, outcome: Outcome) -> None:
        """Record the end."""
        self.journal.append("run_finished", outcome, run=self.id, key="", once=True)

    def trials(self, search: str | None = None) -> list[Trial]:
        """Return the judged proposals in order, of one search or of all."""
        found = [e.decode(Trial) for e in self.journal.events(run=self.id, kind="judged")]
        return [trial for trial in found if search in (None, trial.proposal.search)]

    def confirmations(self) -> Mapping[str, Verdict]:
        """Return the confirmed verdicts by candidate."""
        events = self.journal.events(run=self.id, kind="confirmed")
        return {(verdict := event.decode(Verdict)).candidate: verdict for event in events}

    def pending(self, search: str) -> Proposal | None:
        """Return the proposal that was being judged when the controller died, if any."""
        judged = {trial.proposal.candidate for trial in self.trials(search)}
        for event in reversed(self.journal.events(run=self.id, kind="proposed")):
            proposal = event.decode(Proposal)
            if proposal.search == search and proposal.candidate not in judged:
                return proposal
        return None

    def spent_s(self, search: str) -> float:
        """Return the seconds that a search has spent, over all its controllers."""
        return sum(trial.verdict.seconds for trial in self.trials(search))

    def proposals(self) -> int:
        """Return how many proposals were recorded."""
        return len(self.journal.events(run=self.id, kind="proposed"))

    def passed(self, search: str | None = None) -> list[Trial]:
        """Return the passed trials, fastest first by the low end of the interval."""
        good = [t for t in self.trials(search) if t.verdict.status is Status.PASSED]
        return sorted(good, key=lambda t: -(t.verdict.slow.overall.low if t.verdict.slow else 0.0))
