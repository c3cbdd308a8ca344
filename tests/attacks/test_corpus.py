"""One round of the corpus, and the mutation test of the judge itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strop.core import Reason, Status
from strop.gate.order import CHECKS
from tests.support.bench import Bench
from tests.support.corpus import Entry, Seen, attacks, good, wrong

ATTACKS, GOOD = attacks(), good()
ONLY = {entry.checks[0]: entry for entry in ATTACKS if entry.only}
TRUSTED_TOO = "isolation"
"""The one check that says nothing about what a candidate does."""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("corpus")) as made:
        yield made
        assert all(engine.owner_starts == 1 for engine in made.engines()), "weights were loaded once"


def name(entry: Entry) -> str:
    return entry.name


@pytest.mark.parametrize("entry", ATTACKS, ids=name)
def test_an_attack_is_refused_by_the_check_that_is_there_for_it(bench: Bench, entry: Entry) -> None:
    assert wrong(entry, Seen.of(bench.judge(entry))) == ""


@pytest.mark.parametrize("entry", GOOD, ids=name)
def test_a_good_candidate_passes(bench: Bench, entry: Entry) -> None:
    assert wrong(entry, Seen.of(bench.judge(entry))) == ""


def test_the_corpus_is_large_enough() -> None:
    assert len(GOOD) >= 30
    assert len(ATTACKS) >= 55
    assert all(entry.what.endswith(".") for entry in (*ATTACKS, *GOOD))


def test_every_check_has_an_attack_that_only_it_sees() -> None:
    assert set(ONLY) | {TRUSTED_TOO} == {gate.name for gate in CHECKS}


@pytest.mark.parametrize("check", [gate.name for gate in CHECKS if gate.name != TRUSTED_TOO])
def test_no_check_is_decoration(bench: Bench, check: str) -> None:
    """Without it, an attack is accepted."""
    fewer = tuple(gate for gate in CHECKS if gate.name != check)
    assert bench.judge(ONLY[check], fewer).status is Status.PASSED


def test_untrusted_code_is_refused_where_a_layer_is_missing(bench: Bench) -> None:
    (lean,) = [entry for entry in GOOD if entry.name == "lean"]
    refused = bench.judge_without_layer(lean, "seccomp", trusted=False)
    assert (refused.status, refused.reason) == (Status.FAILED, Reason.NOT_ADMITTED)
    assert refused.checks[-1].name == "isolation"
    assert "seccomp" in refused.detail
    assert "--trust" in refused.detail
    vouched = bench.judge_without_layer(lean, "seccomp", trusted=True)
    assert vouched.status is Status.PASSED
    assert "seccomp" not in vouched.jail
    fewer = tuple(gate for gate in CHECKS if gate.name != "isolation")
    unasked = bench.judge_without_layer(lean, "seccomp", trusted=False, gates=fewer)
    assert unasked.status is Status.PASSED, "nothing else would have refused it"
