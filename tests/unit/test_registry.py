"""Which version is live, and how one comes back from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from strop.core import (
    Candidate,
    Fingerprint,
    Guards,
    Interval,
    Measurement,
    StropError,
    Tier,
    TokenSource,
    Version,
)
from strop.journal import Aliases, Journal, StaleEpoch
from strop.ship.registry import Registry

GAIN = Interval(1.2, 1.1, 1.3, 60)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal.open(tmp_path, "sqlite://") as journal:
        yield journal


@pytest.fixture
def registry(journal: Journal) -> Registry:
    return Registry(journal)


def version(registry: Registry, text: str, deployment: str = "demo") -> Version:
    """Store a candidate and publish a version of it."""
    candidate = Candidate({"forward.py": text, "manifest.toml": ""})
    registry.journal.put_candidate(candidate)
    made = unpublished(candidate.id, deployment)
    registry.publish(made)
    return made


def unpublished(candidate: str, deployment: str = "demo") -> Version:
    fingerprint = Fingerprint("torch", "cpu", 2, 2, "float32", "hash")
    guards = Guards("cpu", "float32", 4, 512)
    measured = Measurement(Tier.SLOW, "w-1", TokenSource.REAL, GAIN, {0: GAIN}, 99.0, 0.5)
    return Version(deployment, candidate, fingerprint, guards, measured)


def names(registry: Registry, deployment: str = "demo") -> dict[str, str]:
    return dict(registry.journal.aliases(deployment).names)


def damage(registry: Registry, version: Version) -> None:
    for digest in registry.journal.blobs.digests():
        path = registry.journal.blobs.path(digest)
        if registry.journal.get_candidate(version.id).files["forward.py"] in path.read_text():
            path.write_bytes(path.read_bytes()[:-1])
            return
    pytest.fail("no blob to damage")


def test_publishing_makes_nothing_live(registry: Registry) -> None:
    a, b = version(registry, "aaa"), version(registry, "bbb")
    assert registry.versions("demo") == [a, b]
    assert registry.versions("other") == []
    assert registry.live("demo") is None
    assert registry.history("demo") == []


def test_publishing_twice_records_once(registry: Registry) -> None:
    a = version(registry, "aaa")
    registry.publish(a)
    assert len(registry.journal.events(kind="published")) == 1


def test_the_newest_proof_of_a_candidate_counts(registry: Registry) -> None:
    a, b = version(registry, "aaa"), version(registry, "bbb")
    registry.promote("demo", a.id)
    wider = dataclasses.replace(a, guards=dataclasses.replace(a.guards, max_batch=64))
    registry.publish(wider)
    assert registry.versions("demo") == [b, wider]
    assert registry.live("demo") == wider
    registry.publish(a)
    assert registry.live("demo") == a
    assert len(registry.journal.events(kind="published")) == 4


def test_a_version_without_its_candidate_is_not_published(registry: Registry) -> None:
    with pytest.raises(StropError, match="no candidate ffff"):
        registry.publish(unpublished("f" * 64))
    assert registry.versions("demo") == []


def test_promotion_keeps_what_was_live(registry: Registry) -> None:
    a, b = version(registry, "aaa"), version(registry, "bbb")
    assert registry.promote("demo", a.id) == 1
    assert registry.live("demo") == a
    assert names(registry) == {"live": a.id}
    assert registry.promote("demo", b.id, expect_epoch=1) == 2
    assert registry.live("demo") == b
    assert names(registry) == {"live": b.id, "previous": a.id}


def test_promoting_the_live_one_keeps_previous(registry: Registry) -> None:
    a, b = version(registry, "aaa"), version(registry, "bbb")
    for id in (a.id, b.id, b.id):
        registry.promote("demo", id)
    assert names(registry) == {"live": b.id, "previous": a.id}


def test_a_promoted_canary_is_no_canary_any_more(registry: Registry) -> None:
    a, b = version(registry, "aaa"), version(registry, "bbb")
    registry.journal.move("demo", {"canary": a.id})
    registry.promote("demo", b.id)
    assert names(registry) == {"live": b.id, "canary": a.id}
    registry.promote("demo", a.id)
    assert names(registry) == {"live": a.id, "previous": b.id}


def test_only_a_published_version_of_the_deployment_is_promoted(registry: Registry) -> None:
    a = version(registry, "aaa", "other")
    with pytest.raises(StropError, match=f"'demo' has no version {a.id[:12]}"):
        registry.promote("demo", a.id)
    assert registry.journal.aliases("demo") == Aliases("demo")


def test_a_damaged_version_is_not_promoted(registry: Registry) -> None:
    a, b = version(registry, "aaa"), version(registry, "bbb")
    registry.promote("demo", a.id)
    damage(registry, b)
    with pytest.raises(StropError, match="is damaged"):
        registry.promote("demo", b.id)
    assert registry.live("demo") == a
    assert registry.journal.aliases("demo").epoch == 1


def test_a_stale_promotion_is_refused(registry: Registry) -> None:
    a, b = version(registry, "aaa"), version(registry, "bbb")
    registry.promote("demo", a.id, expect_epoch=0)
    with pytest.raises(StaleEpoch, match="at epoch 1, not 0"):
        registry.promote("demo", b.id, expect_epoch=0)
    assert names(registry) == {"live": a.id}


@pytest.mark.parametrize("verb", ["promote", "rollback"])
def test_a_move_in_between_is_noticed(registry: Registry, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    """What a decision was based on is read before the transaction that carries it out."""
    a, b = version(registry, "aaa"), version(registry, "bbb")
    registry.promote("demo", a.id)
    read = registry.journal.get_candidate

    def somebody_else(id: str) -> Candidate:
        monkeypatch.undo()
        registry.journal.move("demo", {"previous": None})
        return read(id)

    registry.promote("demo", b.id)
    monkeypatch.setattr(registry.journal, "get_candidate", somebody_else)
    with pytest.raises(StaleEpoch):
        registry.promote("demo", a.id) if verb == "promote" else registry.rollback("demo")
    assert names(registry) == {"live": b.id}


def test_rollback_goes_back_then_to_the_baseline_then_nowhere(registry: Registry) -> None:
    a, b = version(registry, "aaa"), version(registry, "bbb")
    registry.promote("demo", a.id)
    registry.promote("demo", b.id)
    assert registry.rollback("demo") == a
    assert registry.live("demo") == a
    assert names(registry) == {"live": a.id}
    assert registry.rollback("demo") is None
    assert registry.live("demo") is None
    assert names(registry) == {}
    with pytest.raises(StropError, match="nothing to roll back: no version of 'demo' is live"):
        registry.rollback("demo")
    assert registry.journal.aliases("demo").epoch == 4


def test_rollback_of_an_unknown_deployment(registry: Registry) -> None:
    with pytest.raises(StropError, match="nothing to roll back: no version of 'nobody'"):
        registry.rollback("nobody")


def test_rollback_passes_over_a_damaged_version(registry: Registry) -> None:
    a, b = version(registry, "aaa"), version(registry, "bbb")
    registry.promote("demo", a.id)
    registry.promote("demo", b.id)
    damage(registry, a)
    assert registry.rollback("demo") is None
    assert names(registry) == {}
    assert "passing over previous: blob" in registry.history("demo")[-1].why


def test_history_tells_every_move(registry: Registry) -> None:
    a, b = version(registry, "aaa"), version(registry, "bbb")
    registry.promote("demo", a.id)
    registry.promote("demo", b.id)
    version(registry, "ccc", "other")
    registry.rollback("demo")
    history = registry.history("demo")
    assert [(move.why, move.aliases.epoch) for move in history] == [
        ("promote", 1),
        ("promote", 2),
        ("rollback", 3),
    ]
    assert [move.aliases.names.get("live") for move in history] == [a.id, b.id, a.id]
    assert history[-1].aliases == registry.journal.aliases("demo")
    assert [event.at for event in registry.moves("demo")] == [move.at for move in history]


def test_deployments_do_not_touch_one_another(registry: Registry) -> None:
    a = version(registry, "aaa")
    same = version(registry, "aaa", "other")
    registry.promote("demo", a.id)
    assert registry.live("other") is None
    registry.promote("other", same.id)
    registry.rollback("demo")
    assert registry.live("other") == same
    assert registry.journal.check() == []
