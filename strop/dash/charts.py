"""The report's pictures, as SVG text."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from strop.core import Interval, Status, Trial

__all__ = ["curve", "forest", "scatter"]

_COLOURS = {"rewrites": "#0072b2", "flags": "#d55e00"}
_INK = "#777777"
"""Readable on white and on black."""


def curve(trials: Sequence[Trial]) -> str:
    """Draw the best proven ratio over the seconds each search had spent."""
    figure, axes = _figure()
    for search in dict.fromkeys(trial.proposal.search for trial in trials):
        xs, ys = [0.0], [1.0]
        for trial in trials:
            if trial.proposal.search != search:
                continue
            slow = trial.verdict.slow if trial.verdict.status is Status.PASSED else None
            xs.append(trial.spent_s)
            ys.append(max(ys[-1], slow.overall.ratio if slow else 1.0))
        axes.step(xs, ys, where="post", label=search, color=_COLOURS.get(search, "#009e73"), lw=2)
    axes.set(xlabel="search time, s", ylabel="best proven speedup")
    if trials:
        axes.legend(frameon=False, labelcolor=_INK)
    return _svg(figure)


def scatter(points: Sequence[tuple[float, float]]) -> str:
    """Draw (fast ratio, slow ratio) of every candidate measured on both tiers."""
    figure, axes = _figure()
    axes.scatter(*zip(*points, strict=True), color=_COLOURS["rewrites"], s=28) if points else None
    top = max([2.0, *(max(point) for point in points)]) * 1.05
    axes.plot([0.5, top], [0.5, top], color=_INK, lw=0.8, ls=":")
    axes.set(xlabel="fast tier (first layers)", ylabel="slow tier (all layers)")
    return _svg(figure)


def forest(parts: Sequence[tuple[str, Interval]]) -> str:
    """Draw a ratio and its interval a line."""
    figure, axes = _figure(height=0.8 + 0.4 * len(parts))
    for y, (label, found) in enumerate(reversed(parts)):
        axes.plot([found.low, found.high], [y, y], color=_COLOURS["rewrites"], lw=2)
        axes.plot(found.ratio, y, "o", color=_COLOURS["rewrites"])
    axes.set_yticks(range(len(parts)), [label for label, _ in reversed(parts)])
    axes.axvline(1.0, color=_INK, lw=0.8, ls=":")
    axes.set(xlabel="baseline time / candidate time", ylim=(-0.6, len(parts) - 0.4))
    return _svg(figure)


def _figure(height: float = 3.2) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    for spine in axes.spines.values():
        spine.set_color(_INK)
    axes.tick_params(colors=_INK)
    axes.xaxis.label.set_color(_INK)
    axes.yaxis.label.set_color(_INK)
    axes.set_facecolor("none")
    return figure, axes


def _svg(figure: Any) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]
