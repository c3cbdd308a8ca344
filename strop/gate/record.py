"""The judge's notes on one candidate, and the verdict that they amount to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from strop.core import Check, Measurement, Reason, Status, Tier, Verdict

__all__ = ["Record"]


@dataclass(slots=True)
class Record:
    """Notes of the judge: what is known about a candidate while it is judged."""

    candidate: str
    tell: Callable[[Check], None] = lambda check: None
    """Told of every check as it is noted."""
    now: str = "build"
    """The check that is asked, or what the engine does in between: "build" or "run"."""
    checks: list[Check] = field(default_factory=list)
    tier_began: int = 0
    """How many checks came before those of this tier."""
    measured: dict[Tier, Measurement] = field(default_factory=dict)

    def passed(self, name: str, measured: str) -> None:
        """Note a check that passed; of one that is asked at each answer, once."""
        check = Check(name, True, measured)
        if check not in self.checks[self.tier_began :]:
            self._note(check)

    def built(self, measured: str) -> None:
        """Note that the candidate was built for a tier, which begins with it."""
        self.tier_began = len(self.checks)
        self.passed("build", measured)

    def refuse(self, why: str) -> None:
        """Note what refused the candidate, or could not tell."""
        self._note(Check(self.now, False, why))

    def _note(self, check: Check) -> None:
        self.checks.append(check)
        self.tell(check)

    def verdict(self, status: Status, reason: Reason | None = None, detail: str = "") -> Verdict:
        """Return the verdict with all that is known."""
        fast, slow = self.measured.get(Tier.FAST), self.measured.get(Tier.SLOW)
        return Verdict(self.candidate, status, reason, detail, tuple(self.checks), fast, slow)
