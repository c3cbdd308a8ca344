"""The loop at work, on a terminal: best so far, trials an hour, time left. Plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from strop.config import Deployment
from strop.core import Param, Proposal, Status, Tier, Trial

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status as Spinner

__all__ = ["Progress", "Quiet", "trial_line"]


class Quiet:
    """Shows nothing; for `--json`. Satisfies `strop.loop.Listener`."""

    def stage(self, name: str, detail: str = "") -> None:
        """Ignore."""

    def proposed(self, proposal: Proposal) -> None:
        """Ignore."""

    def tier(self, tier: Tier, rounds: int, of: int) -> None:
        """Ignore."""

    def judged(self, trial: Trial) -> None:
        """Ignore."""

    def __enter__(self) -> Quiet:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Progress:
    """One line for every verdict, and on a terminal a live line below. Satisfies `Listener`."""

    def __init__(self, deployment: Deployment, console: Console | None = None) -> None:
        from rich.console import Console as RichConsole

        self.deployment = deployment
        self.console = console or RichConsole(stderr=True, highlight=False)
        self.started = time.monotonic()
        self.trials = 0
        self.refused = 0
        self.best = 0.0
        self.search = ""
        self.current = ""
        self.spent_s = 0.0
        self.spinner: Spinner | None = None

    def stage(self, name: str, detail: str = "") -> None:
        """See `Listener.stage`."""
        if name == "search":
            self.search, self.spent_s = detail, 0.0
            detail = f"{detail}, {self._budget_s():.0f} s"
        self.console.print(f"[bold]{name:>8}[/]  {_plain(detail)}")

    def proposed(self, proposal: Proposal) -> None:
        """See `Listener.proposed`."""
        self.current = f"#{proposal.number} {short(proposal.params)}"
        self._draw("building")

    def tier(self, tier: Tier, rounds: int, of: int) -> None:
        """See `Listener.tier`."""
        self._draw(f"{tier.value} tier, round {rounds} of {of}")

    def judged(self, trial: Trial) -> None:
        """See `Listener.judged`."""
        verdict = trial.verdict
        self.trials += 1
        self.refused += verdict.status is Status.FAILED
        self.spent_s = trial.spent_s
        if verdict.status is Status.PASSED and verdict.slow:
            self.best = max(self.best, verdict.slow.overall.ratio)
        colour = {Status.PASSED: "green", Status.FAILED: "red"}.get(verdict.status, "yellow")
        self.console.print(f"[{colour}]{_plain(trial_line(trial))}[/]", soft_wrap=True)

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            self.spinner = self.console.status("")
            self.spinner.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.spinner:
            self.spinner.stop()

    def _budget_s(self) -> float:
        search = self.deployment.search
        return (
            (search.flag_budget_s or search.budget_s) if self.search == "flags" else search.budget_s
        )

    def _draw(self, doing: str) -> None:
        if not self.spinner:
            return
        elapsed_s = time.monotonic() - self.started
        best = f"best {self.best:.2f}x" if self.best else "no winner yet"
        rate = f"{self.trials / elapsed_s * 3600:.0f} trials/h"
        left = f"{max(0.0, self._budget_s() - self.spent_s):.0f} s left"
        parts = [
            best,
            f"{self.trials} tried, {self.refused} refused",
            rate,
            left,
            self.current,
            doing,
        ]
        self.spinner.update(_plain("  |  ".join(parts)))


def trial_line(trial: Trial) -> str:
    """Say in one line what became of a proposal."""
    verdict, proposal = trial.verdict, trial.proposal
    fast = f"fast {verdict.fast.overall.ratio:.2f}x" if verdict.fast else ""
    slow = ""
    if verdict.slow:
        o = verdict.slow.overall
        slow = f"{o.ratio:.2f}x ({o.low:.2f}..{o.high:.2f})"
    what = verdict.reason.value if verdict.reason else verdict.status.value
    parts = [f"#{proposal.number:<3} {proposal.search:8} {what:13}", slow, fast]
    tail = f"{short(proposal.params)}  {verdict.seconds:.1f} s"
    if verdict.status is not Status.PASSED:
        tail += f"  {verdict.detail}"
    return "  ".join([part for part in parts if part] + [tail])


def short(params: Mapping[str, Param]) -> str:
    """Write choices on one line."""
    return " ".join(f"{name}={value}" for name, value in params.items())


def _plain(text: str) -> str:
    """Keep rich from reading markup in what a candidate or a user wrote."""
    return text.replace("[", r"\[")
