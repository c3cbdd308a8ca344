"""The loop at work, as a terminal sees it: a live view, or one line a verdict in a log.

The live view is drawn between measurements, never by a thread of its own: on a machine whose
every core is being measured, a drawing thread would be noise.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strop.config import Deployment
from strop.core import Check, Proposal, Status, Tier, Trial
from strop.dash import words

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.text import Text

__all__ = ["Checks", "Progress", "Quiet", "trial_line"]

_STYLE = {Status.PASSED: "green", Status.FAILED: "red", Status.INCONCLUSIVE: "yellow"}
_BAR = 40


class Quiet:
    """Shows nothing: for `--json`. Satisfies `strop.listener.Listener`."""

    def __enter__(self) -> Quiet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to end."""

    def stage(self, name: str, detail: str = "") -> None:
        """See `Listener.stage`."""

    def line(self, text: str) -> None:
        """Take a message of the engine."""

    def proposed(self, proposal: Proposal) -> None:
        """See `Listener.proposed`."""

    def tier(self, tier: Tier, rounds: int, of: int) -> None:
        """See `Listener.tier`."""

    def checked(self, check: Check) -> None:
        """See `Listener.checked`."""

    def judged(self, trial: Trial) -> None:
        """See `Listener.judged`."""


@dataclass(slots=True)
class _Seen:
    """What is on show."""

    stage: str = "start"
    detail: str = ""
    search: str = ""
    current: str = ""
    tier: Tier | None = None
    rounds: int = 0
    of: int = 0
    tried: int = 0
    """In this search, by this process."""
    total: int = 0
    refused: int = 0
    best: Trial | None = None
    spent_s: float = 0.0
    """Of this search at `spent_at`, by every process that worked on it."""
    spent_at: float = 0.0
    search_at: float = 0.0


class Progress(Quiet):
    """Shows stages, candidates and verdicts. Satisfies `strop.listener.Listener`; a context manager.

    Where the console is no terminal, every message and every verdict is one plain line.
    """

    def __init__(
        self,
        deployment: Deployment,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make one; nothing is drawn before it is entered.

        Args:
            deployment: whose budgets to count down.
            console: where to draw; standard error by default, so that results can be piped.
            clock: seconds, for the elapsed time.
        """
        from rich.console import Console

        self._deployment = deployment
        self._console = console or Console(stderr=True, highlight=False)
        self._clock = clock
        self._seen = _Seen()
        self._live: Live | None = None

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            from rich.live import Live

            self._live = Live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                get_renderable=self._view,
            )
            self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it was."""
        if self._live:
            self._live.stop()
            self._live = None

    def stage(self, name: str, detail: str = "") -> None:
        """See `Listener.stage`."""
        seen, now = self._seen, self._clock()
        seen.stage, seen.detail, seen.current, seen.tier = name, words.one_line(detail), "", None
        seen.search = detail if name == "search" else ""
        if name == "search":
            seen.tried, seen.spent_s, seen.spent_at, seen.search_at = 0, 0.0, now, now
        self._print(f"{name:<8} {seen.detail}", "dim")

    def line(self, text: str) -> None:
        """Show a message of the engine."""
        self._print(words.one_line(text), "dim")

    def proposed(self, proposal: Proposal) -> None:
        """See `Listener.proposed`."""
        self._seen.current = f"#{proposal.number} {words.params(proposal.params)}"
        self._seen.tier = None
        self._draw()

    def tier(self, tier: Tier, rounds: int, of: int) -> None:
        """See `Listener.tier`."""
        self._seen.tier, self._seen.rounds, self._seen.of = tier, rounds, of
        self._draw()

    def judged(self, trial: Trial) -> None:
        """See `Listener.judged`."""
        seen, slow = self._seen, trial.verdict.slow
        seen.tried, seen.total, seen.current, seen.tier = seen.tried + 1, seen.total + 1, "", None
        seen.refused += trial.verdict.status is Status.FAILED
        seen.spent_s, seen.spent_at = trial.spent_s, self._clock()
        if slow and trial.verdict.status is Status.PASSED:
            best = seen.best.verdict.slow if seen.best else None
            if best is None or slow.overall.ratio > best.overall.ratio:
                seen.best = trial
        self._print(trial_line(trial), _STYLE[trial.verdict.status])

    def _print(self, text: str, style: str) -> None:
        from rich.text import Text

        # Not wrapped: a log line stays one line whatever the width.
        self._console.print(Text(text, style), soft_wrap=True)
        self._draw()

    def _draw(self) -> None:
        if self._live:
            self._live.refresh()

    def _view(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        seen = self._seen
        head = Text.assemble((self._deployment.name, "bold"), f"  {seen.stage} {seen.detail}  ")
        head.append(self._clock_text(), "dim")
        lines: list[RenderableType] = [Text(), head, self._best_line()]
        if seen.current:
            lines.append(Text(seen.current, "cyan", no_wrap=True, overflow="ellipsis"))
        if seen.tier:
            lines.append(self._bar(seen.tier))
        return Group(*lines)

    def _bar(self, tier: Tier) -> RenderableType:
        from rich.columns import Columns
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        seen = self._seen
        bar = ProgressBar(total=seen.of, completed=seen.rounds, width=_BAR)
        count = Text(f"{seen.rounds}/{seen.of} rounds")
        return Columns([Text(f"{tier.value} tier"), bar, count], padding=(0, 1))

    def _best_line(self) -> Text:
        from rich.text import Text

        seen = self._seen
        best = seen.best.verdict.slow if seen.best else None
        text = Text("best so far ")
        text.append(words.interval(best.overall) if best else "none yet", "bold green" if best else "")
        text.append(f"   {seen.total} tried, {seen.refused} refused")
        if rate := self._per_hour():
            text.append(f", {rate:.0f} an hour")
        return text

    def _clock_text(self) -> str:
        """Return elapsed time, and what is left of the search's budget."""
        seen = self._seen
        if not seen.search:
            return ""
        elapsed = seen.spent_s + self._clock() - seen.spent_at
        budget = self._deployment.search.budget_for_s(seen.search)
        left = max(budget - elapsed, 0.0)
        of = f"{words.seconds(elapsed)} of {words.seconds(budget)}"
        return f"{of}, {words.seconds(left)} left"

    def _per_hour(self) -> float:
        """Return judged candidates an hour, in this search; 0 before the first."""
        seen = self._seen
        took = seen.spent_at - seen.search_at
        return seen.tried / took * 3600 if seen.tried and took > 0 else 0.0


class Checks(Progress):
    """Shows every check of one candidate as it is made: for `strop verify`."""

    def checked(self, check: Check) -> None:
        """See `Listener.checked`."""
        mark, style = ("ok", "green") if check.passed else ("NO", "bold red")
        self._seen.tier = None
        self._print(f"  {mark}  {check.name:<14} {words.one_line(check.measured, 400)}", style)


def trial_line(trial: Trial) -> str:
    """Return a verdict on one line: number, search, result, ratios, choices, seconds, why."""
    verdict = trial.verdict
    parts = [f"#{trial.proposal.number} {words.one_line(trial.proposal.search)}", words.result(verdict)]
    if verdict.slow:
        parts.append(words.interval(verdict.slow.overall))
    if verdict.fast:
        parts.append(f"fast {words.ratio(verdict.fast.overall.ratio)}")
    parts += [words.params(trial.proposal.params), words.seconds(verdict.seconds)]
    if verdict.detail:
        parts.append(words.one_line(verdict.detail, 120))
    return "  ".join(parts)
