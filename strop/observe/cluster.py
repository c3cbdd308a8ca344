"""Cluster a trace: kinds of requests that cost alike, each with its share of the traffic."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np
import numpy.typing as npt

from strop.core import Cluster, StropError, TokenSource, Workload
from strop.observe import mixture
from strop.observe.mixture import Component, Points
from strop.observe.records import Request, Trace

__all__ = ["Clustering", "cluster", "fit", "one_call"]

_ALGORITHM = "gmm-bic-log-1"
"""Changes whenever the same trace could come out in other clusters."""


@dataclass(frozen=True, slots=True)
class Clustering:
    """A workload and the mixture behind it; plain numbers, so it can be stored."""

    workload: Workload
    components: tuple[Component, ...]
    """In the order of the workload's clusters."""

    def assign(self, requests: Sequence[Request]) -> tuple[int, ...]:
        """Return the id of the likeliest cluster of each request."""
        if not requests:
            return ()
        ids = np.array([c.id for c in self.workload.clusters])
        scores = mixture.log_joint(_points(requests), self.components)
        return tuple(int(i) for i in ids[scores.argmax(axis=1)])


def one_call(name: str) -> Workload:
    """Return the workload of a module that is no language model: its own sampler's inputs."""
    call = Cluster(0, isl=1, osl=1, weight=1.0, isl_range=(1, 1), osl_range=(1, 1))
    return Workload(name, "module-1", 0, (call,))


def cluster(
    trace: Trace,
    max_clusters: int = 8,
    seed: int = 0,
    concurrency: int = 1,
    tokens: TokenSource = TokenSource.REAL,
) -> Workload:
    """Return the workload of a trace; see `fit`."""
    return fit(trace, max_clusters, seed, concurrency, tokens).workload


def fit(
    trace: Trace,
    max_clusters: int = 8,
    seed: int = 0,
    concurrency: int = 1,
    tokens: TokenSource = TokenSource.REAL,
) -> Clustering:
    """Cluster a trace's requests by their lengths. The same arguments give the same answer.

    Each cluster stands for the requests assigned to it: its lengths are those of the medoid, a
    real request nearest to the component's mean (Mahalanobis distance), its weight is their
    share, its cached prefix is the medoid's length times their median cached share. Clusters
    are numbered from 0, the heaviest first.

    Args:
        trace: At least one request.
        max_clusters: BIC chooses from 1 to so many components.
        seed: Of the mixture's k-means start.
        concurrency: Requests in flight together, given to every cluster.
        tokens: Where the measured tokens will come from, a label.

    Raises:
        StropError: the trace has no requests, or an argument is below 1.
    """
    _check(trace, max_clusters, concurrency)
    points = _points(trace.requests)
    components = mixture.fit(points, max_clusters, seed)
    labels = mixture.log_joint(points, components).argmax(axis=1)
    members = {int(i): np.flatnonzero(labels == i) for i in np.unique(labels)}
    found = [
        (_describe(trace.requests, points, rows, components[i], concurrency), components[i])
        for i, rows in members.items()
    ]
    found.sort(key=lambda pair: (-pair[0].weight, pair[0].isl, pair[0].osl))
    clusters = tuple(_numbered(c, number) for number, (c, _) in enumerate(found))
    version = _version((max_clusters, seed, concurrency, tokens.value), trace.requests, clusters)
    workload = Workload(trace.path.name, version, len(trace.requests), clusters, tokens)
    return Clustering(workload, tuple(component for _, component in found))


def _check(trace: Trace, max_clusters: int, concurrency: int) -> None:
    if not trace.requests:
        raise StropError(f"{trace.path}: no requests to cluster")
    for name, value in (("max_clusters", max_clusters), ("concurrency", concurrency)):
        if value < 1:
            raise StropError(f"traffic.{name}: at least 1 is expected, got {value}")


def _points(requests: Sequence[Request]) -> Points:
    """Return float64, shape (requests, 2): ln ISL and ln OSL."""
    return np.log(np.array([(r.isl, r.osl) for r in requests], np.float64))


def _describe(
    requests: Sequence[Request],
    points: Points,
    rows: npt.NDArray[np.intp],
    component: Component,
    concurrency: int,
) -> Cluster:
    medoid = requests[rows[mixture.distances(points[rows], component).argmin()]]
    own = [requests[row] for row in rows]
    cached = float(np.median([r.cached_prefix / r.isl for r in own]))
    return Cluster(
        id=-1,
        isl=medoid.isl,
        osl=medoid.osl,
        weight=len(own) / len(requests),
        concurrency=concurrency,
        cached_prefix=int(cached * medoid.isl),
        isl_range=_range([r.isl for r in own]),
        osl_range=_range([r.osl for r in own]),
    )


def _range(lengths: list[int]) -> tuple[int, int]:
    # Lengths that occur, not interpolated ones.
    low, high = np.percentile(lengths, (10, 90), method="nearest")
    return int(low), int(high)


def _numbered(cluster: Cluster, number: int) -> Cluster:
    return Cluster(number, *astuple(cluster)[1:])


def _version(parameters: tuple[object, ...], requests: Sequence[Request], clusters: Sequence[Cluster]) -> str:
    """Name a clustering by what went in and what came out.

    The result is hashed too, because another numerical library may round a border elsewhere.
    """
    digest = hashlib.sha256(
        repr((_ALGORITHM, mixture.LEAST_VARIANCE, mixture.MOST_FITTED, *parameters)).encode()
    )
    for r in requests:
        digest.update(b"%d,%d,%d;" % (r.isl, r.osl, r.cached_prefix))
    digest.update(repr(clusters).encode())
    return digest.hexdigest()[:12]
