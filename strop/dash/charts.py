"""Charts as inline SVG: they follow the page's colours and keep their letters at any width.

Places are percentages of the chart, so a chart stretches while its text and its marks do not.
Ratios are drawn on a log scale, on which twice as fast and half as fast are equally far from 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from strop.core import Interval
from strop.dash import words

__all__ = ["Axis", "Dot", "Series", "bar", "curve", "mark", "ruler", "scatter"]

_MARKS = ("M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z", "M-4-4h8v8h-8z", "M0-5.5L5.5 0L0 5.5L-5.5 0z")
"""Circle, square, diamond: told apart without colour."""


@dataclass(frozen=True, slots=True)
class Dot:
    """One judged candidate."""

    x: float
    y: float
    series: int
    title: str


@dataclass(frozen=True, slots=True)
class Series:
    """One search: the best ratio so far after so many seconds."""

    name: str
    steps: tuple[tuple[float, float], ...]
    """(seconds, best ratio from then on), in order."""
    refused: tuple[float, ...]
    """Seconds at which a candidate was not passed."""
    end_s: float


@dataclass(frozen=True, slots=True)
class Axis:
    """A scale of ratios, logarithmic, that holds 1."""

    low: float
    high: float

    @classmethod
    def over(cls, values: Sequence[float]) -> Axis:
        """Return the scale that holds these ratios and 1, with room at both ends."""
        logs = [0.0, *(math.log(value) for value in values)]
        room = max(0.06 * (max(logs) - min(logs)), 0.01)
        return cls(math.exp(min(logs) - room), math.exp(max(logs) + room))

    def at(self, value: float) -> float:
        """Return where a ratio lies, in percent of the length."""
        span = math.log(self.high / self.low)
        return 100 * math.log(value / self.low) / span

    @property
    def ticks(self) -> list[float]:
        """Three to seven round ratios; 1 is one of them."""
        if self.high / self.low > 6:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            leads = (1, 2, 5) if self.high / self.low < 200 else (1,)
            found = [lead * 10.0**power for power in decades for lead in leads]
        else:
            step = round_step((self.high - self.low) / 5)
            first, last = math.ceil((self.low - 1) / step), math.floor((self.high - 1) / step)
            found = [1 + step * index for index in range(first, last + 1)]
        return [tick for tick in found if self.low <= tick <= self.high]


def round_step(least: float) -> float:
    """Return the smallest of 1, 2, 2.5, 5 times a power of ten that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(lead * power for lead in (1, 2, 2.5, 5, 10) if lead * power >= least * (1 - 1e-9))


def bar(axis: Axis, found: Interval, series: int = 0) -> str:
    """Return one row of a forest plot: the interval, its middle, and a line at 1."""
    low, high, middle = axis.at(found.low), axis.at(found.high), axis.at(found.ratio)
    return _chart(
        words.interval(found),
        _grid(axis),
        _line(low, 50, high, 50, f"whisker s{series % 3}"),
        _mark(middle, 50, series),
        kind="row",
    )


def ruler(axis: Axis) -> str:
    """Return the scale under the rows of a forest plot."""
    labels = (_text(axis.at(t), 0, _tick(t), "middle", dy=12) for t in axis.ticks)
    return _chart("scale of ratios", *labels, kind="ruler")


def mark(series: int) -> str:
    """Return a search's mark, for a legend."""
    shape = f'<path d="{_MARKS[series % len(_MARKS)]}"/>'
    return f'<svg class="key s{series % 3}" viewBox="-7 -7 14 14" aria-hidden="true">{shape}</svg>'


def curve(series: Sequence[Series], dots: Sequence[Dot]) -> str:
    """Return the best ratio so far over the seconds of each search.

    Args:
        series: one a search.
        dots: passed candidates, x in seconds, y the slow tier's ratio.
    """
    end = max(max((one.end_s for one in series), default=0.0), 1.0)
    axis = Axis.over([dot.y for dot in dots])
    parts = [_across(axis), *_clock(end)]
    for index, one in enumerate(series):
        parts.append(_steps(one, index, axis, end))
        parts += [_line(100 * s / end, 100, 100 * s / end, 96, f"rug s{index}") for s in one.refused]
    parts += [_mark(100 * d.x / end, 100 - axis.at(d.y), d.series, d.title) for d in dots]
    return _chart("best ratio so far over the seconds of search", *parts, kind="curve")


def scatter(dots: Sequence[Dot]) -> str:
    """Return the slow tier's ratio over the fast tier's; on the diagonal they agree."""
    axis = Axis.over([value for dot in dots for value in (dot.x, dot.y)])
    parts = [_across(axis), _grid(axis)]
    parts += [_text(axis.at(t), 100, _tick(t), "middle", dy=18) for t in axis.ticks]
    parts.append(_line(0, 100, 100, 0, "diagonal"))
    parts += [_mark(axis.at(d.x), 100 - axis.at(d.y), d.series, d.title) for d in dots]
    return _chart("slow tier's ratio over the fast tier's", *parts, kind="scatter")


def _steps(one: Series, index: int, axis: Axis, end: float) -> str:
    """Return the stairs; stretched with the chart, while the line keeps its width."""
    path = f"M0 {100 - axis.at(1.0):.3f}"
    for at, best in one.steps:
        path += f"H{100 * at / end:.3f}V{100 - axis.at(best):.3f}"
    path += f"H{100 * one.end_s / end:.3f}"
    box = 'viewBox="0 0 100 100" preserveAspectRatio="none" width="100%" height="100%"'
    return f'<svg {box} overflow="visible"><path class="stairs s{index % 3}" d="{path}"/></svg>'


def _rug(x: float, index: int) -> str:
    return _line(x, 100, x, 96, f"rug s{index % 3}")


def _across(axis: Axis) -> str:
    """Return the level lines of a chart whose height is a ratio."""
    parts = []
    for tick in axis.ticks:
        y = 100 - axis.at(tick)
        parts.append(_line(0, y, 100, y, "one" if tick == 1 else "grid"))
        parts.append(_text(0, y, _tick(tick), "end", dx=-8, dy=4))
    return "".join(parts)


def _grid(axis: Axis) -> str:
    parts = []
    for tick in axis.ticks:
        x = axis.at(tick)
        parts.append(_line(x, 0, x, 100, "one" if tick == 1 else "grid"))
    return "".join(parts)


def _clock(end_s: float) -> list[str]:
    """Return labels for round seconds, minutes or hours under a chart of `end_s` seconds."""
    unit, name = next(((u, n) for u, n in ((3600, "h"), (60, "min")) if end_s >= 2 * u), (1, "s"))
    step = round_step(end_s / unit / 5)
    count = math.floor(end_s / unit / step + 1e-9)
    return [
        _text(100 * i * step * unit / end_s, 100, f"{i * step:g} {name}", "middle", dy=18)
        for i in range(count + 1)
    ]


def _tick(value: float) -> str:
    return f"{value:.4g}\N{MULTIPLICATION SIGN}"


def _chart(label: str, *parts: str, kind: str) -> str:
    return f'<svg class="chart {kind}" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    places = f'x1="{x1:.3f}%" y1="{y1:.3f}%" x2="{x2:.3f}%" y2="{y2:.3f}%"'
    return f'<line class="{kind}" {places}/>'


def _text(x: float, y: float, text: str, anchor: str, dx: int = 0, dy: int = 0) -> str:
    place = f'x="{x:.3f}%" y="{y:.3f}%" dx="{dx}" dy="{dy}" text-anchor="{anchor}"'
    return f"<text {place}>{escape(text)}</text>"


def _mark(x: float, y: float, series: int, title: str = "") -> str:
    """Return a mark of fixed size at a place in percent: SVG has no path in percent."""
    hint = f"<title>{escape(title)}</title>" if title else ""
    shape = f'<path class="mark s{series % 3}" d="{_MARKS[series % len(_MARKS)]}"/>'
    return f'<svg x="{x:.3f}%" y="{y:.3f}%" overflow="visible">{hint}{shape}</svg>'
