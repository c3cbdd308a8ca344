"""Who looks on while the loop works."""

from __future__ import annotations

from typing import Protocol

from strop.core import Check, Proposal, Tier, Trial

__all__ = ["Listener"]


class Listener(Protocol):
    """Sees the loop at work; draws progress, or nothing."""

    def stage(self, name: str, detail: str = "") -> None:
        """A stage of the loop begins."""

    def proposed(self, proposal: Proposal) -> None:
        """A candidate is about to be judged."""

    def tier(self, tier: Tier, rounds: int, of: int) -> None:
        """So many rounds of pairs are done."""

    def checked(self, check: Check) -> None:
        """A check passed, or refused the candidate."""

    def judged(self, trial: Trial) -> None:
        """A verdict was recorded."""
