"""Draw a trace: input against output length, coloured by cluster, with marginal histograms."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from strop.core import Cluster, StropError
from strop.observe.cluster import Clustering
from strop.observe.records import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["PALETTE", "draw"]

PALETTE = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7",
    "#D55E00", "#56B4E9", "#6B4C9A", "#595959",
)  # fmt: skip
"""Told apart by colour-blind readers too: after M. Okabe and K. Ito, "Color universal design"
(2008), with violet and grey for their yellow and black."""

_INK = "#262626"
_FAINT = "#8C8C8C"
_MOST_DRAWN = 20_000
_DPI = 160

_Points = npt.NDArray[np.float64]
_Labels = npt.NDArray[np.int64]


def draw(trace: Trace, clustering: Clustering, path: Path) -> None:
    """Write the picture of a clustered trace as PNG or SVG, by the suffix of `path`.

    A trace of more than 20,000 requests is drawn from every n-th one; the title counts all.

    Raises:
        StropError: another suffix, or the file cannot be written.
    """
    if path.suffix.lower() not in (".png", ".svg"):
        raise StropError(f"{path}: the picture's name must end in .png or .svg")
    import matplotlib as mpl

    style: dict[Any, Any] = {
        "font.family": "DejaVu Sans", "font.size": 9, "svg.hashsalt": "strop",
        "text.color": _INK, "axes.labelcolor": _INK,
    }  # fmt: skip
    # Without a date the same trace gives the same bytes.
    metadata = {"Date": None} if path.suffix.lower() == ".svg" else {}
    with mpl.rc_context(style):
        figure = _figure(trace, clustering)
        try:
            figure.savefig(path, dpi=_DPI, metadata=metadata)
        except OSError as error:
            raise StropError(f"{path}: cannot be written: {error.strerror}") from None


def _figure(trace: Trace, clustering: Clustering) -> Figure:
    # Not pyplot: it would choose a window system and keep the figure alive.
    from matplotlib.figure import Figure

    step = -(-len(trace.requests) // _MOST_DRAWN)
    shown = trace.requests[::step]
    points = np.array([(r.isl, r.osl) for r in shown], np.float64)
    labels = np.array(clustering.assign(shown), np.int64)
    clusters = clustering.workload.clusters
    figure = Figure(figsize=(9.2, 6.4), facecolor="white")
    grid = figure.add_gridspec(
        2, 3, width_ratios=(5, 1, 2.2), height_ratios=(1, 5), wspace=0.04, hspace=0.05,
        left=0.088, right=0.985, top=0.9, bottom=0.09,
    )  # fmt: skip
    main = figure.add_subplot(grid[1, 0])
    top = figure.add_subplot(grid[0, 0], sharex=main)
    side = figure.add_subplot(grid[1, 1], sharey=main)
    _scatter(main, points, labels, clusters)
    for axes, column in ((top, 0), (side, 1)):
        _histogram(axes, points[:, column], labels, clusters, sideways=column == 1)
    _key(figure.add_subplot(grid[:, 2]), clusters)
    _title(figure, trace, clustering)
    return figure


def _scatter(axes: Axes, points: _Points, labels: _Labels, clusters: tuple[Cluster, ...]) -> None:
    size = float(np.clip(3000 / len(points), 2.5, 16))
    order = np.random.default_rng(0).permutation(len(points))  # else the last cluster hides all
    colours = np.array([_colour(i) for i in range(max(labels) + 1)])
    axes.scatter(
        points[order, 0], points[order, 1], s=size, c=colours[labels[order]],
        alpha=0.45, linewidths=0, rasterized=True,
    )  # fmt: skip
    for cluster in reversed(clusters):  # the heaviest lies on top
        axes.plot(
            cluster.isl, cluster.osl, "o", color=_colour(cluster.id), markersize=13.5,
            markeredgecolor="white", markeredgewidth=1.4, zorder=3,
        )  # fmt: skip
        axes.annotate(
            str(cluster.id), (cluster.isl, cluster.osl), ha="center", va="center_baseline",
            color="white", weight="bold", fontsize=8, zorder=3,
        )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="input, tokens", ylabel="output, tokens")
    axes.set_xlim(_limits(points[:, 0]))
    axes.set_ylim(_limits(points[:, 1]))
    _ticks(axes)
    axes.grid(which="major", color="#E6E6E6", linewidth=0.7)
    axes.set_axisbelow(True)
    _bare(axes)


def _limits(values: _Points) -> tuple[float, float]:
    return float(values.min()) / 1.4, float(values.max()) * 1.4


def _ticks(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        # Over a narrow span the decades alone would leave the axis without a label.
        subs = (1.0,) if high / low > 500 else (1.0, 2.0, 5.0)
        axis.set_major_locator(LogLocator(subs=subs, numticks=20))
        axis.set_major_formatter(FuncFormatter(lambda tokens, _: f"{tokens:,.0f}"))
        axis.set_minor_formatter(NullFormatter())


def _histogram(
    axes: Axes, values: _Points, labels: _Labels, clusters: tuple[Cluster, ...], sideways: bool
) -> None:
    low, high = _limits(values)
    axes.hist(
        [values[labels == cluster.id] for cluster in clusters],
        bins=list(np.geomspace(low, high, 49)),
        color=[_colour(cluster.id) for cluster in clusters],
        orientation="horizontal" if sideways else "vertical",
        stacked=True,
        linewidth=0,
    )
    axes.tick_params(which="both", labelbottom=False, labelleft=False, bottom=False, left=False)
    _bare(axes)
    axes.spines[["bottom", "left"]].set_visible(False)
    axes.spines["left" if sideways else "bottom"].set(visible=True, color="#CCCCCC")


def _bare(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["bottom", "left"]].set_color("#CCCCCC")
    axes.tick_params(which="both", colors=_FAINT, labelcolor=_INK)


def _key(axes: Axes, clusters: tuple[Cluster, ...]) -> None:
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.axis("off")
    axes.text(0.19, 0.825, "share    medoid, in \N{RIGHTWARDS ARROW} out", color=_FAINT)
    gap = min(0.095, 0.82 / len(clusters))
    for row, cluster in enumerate(clusters):
        y = 0.775 - gap * row
        axes.plot(0.1, y, "o", color=_colour(cluster.id), markersize=13, clip_on=False)
        axes.text(
            0.1, y, str(cluster.id), ha="center", va="center_baseline", color="white",
            weight="bold", fontsize=8,
        )  # fmt: skip
        axes.text(0.37, y, f"{cluster.weight:.1%}", ha="right", va="center_baseline")
        medoid = f"{cluster.isl:,} \N{RIGHTWARDS ARROW} {cluster.osl:,}"
        axes.text(0.44, y, medoid, va="center_baseline", weight="bold")


def _title(figure: Figure, trace: Trace, clustering: Clustering) -> None:
    count = len(clustering.workload.clusters)
    kinds = "one cluster" if count == 1 else f"{count} clusters"
    left_out = f", {trace.left_out:,} left out as too long" if trace.left_out else ""
    figure.text(0.02, 0.955, trace.path.name, fontsize=13, weight="bold")
    figure.text(0.02, 0.922, f"{len(trace.requests):,} requests in {kinds}{left_out}", color=_FAINT)


def _colour(cluster: int) -> str:
    return PALETTE[cluster % len(PALETTE)]
