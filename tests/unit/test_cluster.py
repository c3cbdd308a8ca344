"""Clustering: planted groups are found, degenerate traces work, the same in gives the same out."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from strop.core import StropError, TokenSource
from strop.observe.cluster import Clustering, cluster, fit
from strop.observe.records import Request, Trace
from strop.observe.traffic import read

AZURE = Path(__file__).parents[2] / "examples" / "azure_conv_slice.csv"


def _trace(requests: list[Request]) -> Trace:
    return Trace(Path("folder/made.jsonl"), "strop", tuple(requests))


def _planted(seed: int = 1) -> Trace:
    """Two thirds short chats, one third long documents half of which is cached."""
    rng = random.Random(seed)

    def near(centre: float) -> int:
        return max(1, round(math.exp(rng.gauss(math.log(centre), 0.2))))

    chats = [Request(float(i), near(100), near(200)) for i in range(200)]
    documents = [Request(float(i), isl := near(5000), near(20), isl // 2) for i in range(100)]
    mixed = chats + documents
    rng.shuffle(mixed)
    return _trace(mixed)


def test_planted_groups_are_found() -> None:
    trace = _planted()
    workload = cluster(trace, concurrency=4)
    assert workload.name == "made.jsonl"
    assert workload.requests == 300
    assert workload.tokens is TokenSource.REAL
    chat, document = workload.clusters
    assert (chat.id, document.id) == (0, 1)
    assert chat.weight == pytest.approx(2 / 3)
    assert document.weight == pytest.approx(1 / 3)
    assert 90 < chat.isl < 110
    assert 180 < chat.osl < 220
    assert 4500 < document.isl < 5500
    assert chat.isl_range[0] < chat.isl < chat.isl_range[1]
    # p10 and p90 of a log-normal with sigma 0.2 lie a factor exp(0.256) from its median.
    assert chat.isl_range[1] / chat.isl_range[0] == pytest.approx(math.exp(0.513), rel=0.15)
    assert chat.cached_prefix == 0
    assert document.cached_prefix == pytest.approx(document.isl / 2, rel=0.01)
    assert chat.concurrency == document.concurrency == 4
    assert workload.cluster(1) is document


def test_medoids_are_real_requests_and_shares_add_up() -> None:
    trace = read(AZURE)
    workload = cluster(trace)
    lengths = {(r.isl, r.osl) for r in trace.requests}
    assert 1 < len(workload.clusters) <= 8
    assert all((c.isl, c.osl) in lengths for c in workload.clusters)
    assert sum(c.weight for c in workload.clusters) == pytest.approx(1.0)
    weights = [c.weight for c in workload.clusters]
    assert weights == sorted(weights, reverse=True)
    assert [c.id for c in workload.clusters] == list(range(len(weights)))


def test_same_in_same_out_and_the_version_names_it() -> None:
    trace = _planted()
    first = fit(trace)
    assert fit(trace) == first
    version = first.workload.version
    assert len(version) == 12
    others = [
        fit(trace, max_clusters=3),
        fit(trace, seed=1),
        fit(trace, concurrency=2),
        fit(trace, tokens=TokenSource.SYNTHETIC),
        fit(_trace(list(trace.requests[1:]))),
        fit(_trace([replace(trace.requests[0], cached_prefix=1), *trace.requests[1:]])),
    ]
    assert len({version, *(other.workload.version for other in others)}) == 7
    # The path is no part of the content.
    moved = replace(trace, path=Path("elsewhere"))
    assert fit(moved).workload.version == version


def test_assign_agrees_with_the_shares_and_with_sklearn() -> None:
    from sklearn.mixture import GaussianMixture

    trace = read(AZURE, limit=600)
    clustering = fit(trace, max_clusters=4)
    ids = np.array(clustering.assign(trace.requests))
    for c in clustering.workload.clusters:
        assert np.mean(ids == c.id) == pytest.approx(c.weight)
    points = np.log([(r.isl, r.osl) for r in trace.requests])
    oracle = GaussianMixture(len(clustering.components), reg_covar=1e-3, random_state=0)
    oracle.fit(points)
    # The same partition, whatever the components are called.
    pairs = set(zip(ids.tolist(), oracle.predict(points).tolist(), strict=True))
    assert len(pairs) == len(set(ids.tolist()))


def test_assign_new_requests() -> None:
    clustering = fit(_planted())
    assert clustering.assign([Request(0, 110, 190), Request(0, 4000, 25)]) == (0, 1)
    assert clustering.assign([Request(0, 90_000_000, 1)]) == (1,)
    assert clustering.assign([]) == ()


@pytest.mark.parametrize("count", [1, 2, 50])
def test_identical_requests_are_one_cluster(count: int) -> None:
    clustering = fit(_trace([Request(0.0, 128, 32, 64)] * count))
    (only,) = clustering.workload.clusters
    assert (only.isl, only.osl, only.weight, only.cached_prefix) == (128, 32, 1.0, 64)
    assert only.isl_range == (128, 128)
    assert only.osl_range == (32, 32)
    assert clustering.assign([Request(0.0, 1, 1)]) == (0,)


@pytest.mark.parametrize(
    "lengths",
    [
        [(1, 1), (1_000_000, 1)],
        [(10, 1)] * 30 + [(1000, 1)] * 30 + [(10, 1)],
        [(n, 1) for n in range(1, 40)],
        [(1, 1), (2, 2), (3, 3)],
    ],
    ids=["two far apart", "two spikes", "one output length", "a line"],
)
def test_degenerate_traces(lengths: list[tuple[int, int]]) -> None:
    trace = _trace([Request(float(i), isl, osl) for i, (isl, osl) in enumerate(lengths)])
    clustering = fit(trace)
    workload = clustering.workload
    assert 1 <= len(workload.clusters) <= min(8, len(set(lengths)))
    assert sum(c.weight for c in workload.clusters) == pytest.approx(1.0)
    assert all((c.isl, c.osl) in lengths for c in workload.clusters)
    assert all(math.isfinite(x) for part in clustering.components for x in part.covariance)


def test_spikes_are_told_apart() -> None:
    spikes = [Request(0.0, 10, 1)] * 31 + [Request(0.0, 1000, 1)] * 30
    workload = cluster(_trace(spikes))
    assert [(c.isl, round(c.weight, 3)) for c in workload.clusters] == [(10, 0.508), (1000, 0.492)]


def test_max_clusters_is_a_bound() -> None:
    (only,) = cluster(_planted(), max_clusters=1).clusters
    assert only.weight == 1.0


def test_long_traces_are_sampled_but_fully_assigned() -> None:
    small = _planted().requests
    trace = _trace(list(small) * 70)
    clustering = fit(trace, max_clusters=2)
    assert isinstance(clustering, Clustering)
    assert clustering.workload.requests == 21_000
    assert clustering.workload.clusters[0].weight == pytest.approx(2 / 3, abs=0.01)


def test_bad_arguments() -> None:
    with pytest.raises(StropError, match="no requests"):
        cluster(_trace([]))
    with pytest.raises(StropError, match=r"traffic\.max_clusters: at least 1"):
        cluster(_planted(), max_clusters=0)
    with pytest.raises(StropError, match=r"traffic\.concurrency: at least 1"):
        cluster(_planted(), concurrency=0)
