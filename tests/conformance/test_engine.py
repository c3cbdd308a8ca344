"""One suite for every engine: what `strop.engine.contract.Engine` promises."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest

from strop import config
from strop.core import BASELINE_ID, Candidate, EngineGone, Fault, Reason, StropError, Tier
from strop.engine.client import ProcessEngine
from strop.engine.contract import Batch, Role
from tests.support.candidates import TORCH, TOY, candidate

PROMPTS = (tuple(range(3, 40)), tuple(range(7, 19)), (5,))


@dataclass
class Case:
    engine: ProcessEngine
    candidates: Mapping[str, Candidate]


CASES = {
    "toy": ("strop.engine.toy", "toy", TOY),
    "torch": ("strop.engine.torch.holder", "tests.support.models:tiny_llama", TORCH),
}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    holder, model, candidates = CASES[request.param]
    settings = config.Engine(model=model, threads=1, step_timeout_s=3.0, build_timeout_s=20.0)
    with ProcessEngine(holder, settings) as engine:
        yield Case(engine, candidates)
        assert engine.owner_starts == 1, "the weights were loaded once, whatever happened"


@pytest.fixture(autouse=True)
def restored(case: Case) -> Iterator[None]:
    yield
    case.engine.restore()
    assert case.engine.health()


def install(case: Case, name: str, tier: Tier = Tier.SLOW) -> str:
    candidate = case.candidates[name]
    case.engine.load(candidate, tier)
    case.engine.activate(candidate.id, tier)
    return candidate.id


def run(case: Case, name: str) -> None:
    install(case, name)
    bits(case.engine)


def bits(engine: ProcessEngine, role: Role = Role.ACTIVE, tier: Tier = Tier.SLOW) -> list[bytes]:
    batch = Batch(prompts=PROMPTS, forced=((1, 2),) * 3)
    return [array.tobytes() for array in engine.score(batch, role, tier).outputs]


def test_it_says_what_it_holds(case: Case) -> None:
    held = case.engine.describe()
    assert held.vocab > 0
    assert 2 <= held.fast_layers < held.layers
    assert held.decode_bytes[Tier.FAST] < held.decode_bytes[Tier.SLOW] <= held.weight_bytes
    assert len(held.fingerprint.model_hash) == 64
    assert held.source


def test_greedy_steps_are_chained(case: Case) -> None:
    """Each timed token is the best one by the logits that the tokens before it give."""
    timing = case.engine.measure(Batch(prompts=PROMPTS, steps=5))
    assert timing.tokens.shape == (3, 6)
    assert timing.prefill_ns > 0
    assert timing.decode_ns > 0
    for prompt, said in zip(PROMPTS, timing.tokens.tolist(), strict=True):
        logits = case.engine.score(Batch(prompts=(prompt + tuple(said[:-1]),)), Role.BASELINE).outputs[0]
        assert logits[-len(said) :].argmax(-1).tolist() == said


def test_the_first_decode_step_is_fed_what_the_judge_says(case: Case) -> None:
    fed = ((11,), (12,), (13,))
    said = case.engine.measure(Batch(prompts=PROMPTS, steps=3, forced=fed)).tokens.tolist()
    for prompt, first, row in zip(PROMPTS, fed, said, strict=True):
        text = (*prompt, *first, *row[1:-1])
        logits = case.engine.score(Batch(prompts=(text,)), Role.BASELINE).outputs[0]
        assert logits[len(prompt) - 1 :].argmax(-1).tolist() == row


def test_outputs_and_inputs_can_be_read_again(case: Case) -> None:
    scored = case.engine.score(Batch(prompts=PROMPTS, forced=((1, 2),) * 3), reread=True)
    assert scored.later is not None
    assert scored.inputs is not None
    assert [a.tobytes() for a in scored.later] == [a.tobytes() for a in scored.outputs]
    assert [tuple(array.tolist()) for array in scored.inputs] == list(PROMPTS)


def test_neither_other_buffers_nor_garbage_in_new_memory_change_a_bit(case: Case) -> None:
    batch = Batch(prompts=PROMPTS, forced=((1, 2),) * 3)
    first = [array.tobytes() for array in case.engine.score(batch).outputs]
    other = case.engine.score(replace(batch, slot=1), poison=True).outputs
    assert [array.tobytes() for array in other] == first


def test_a_reply_in_advance_is_none(case: Case) -> None:
    """Frames that were sent before the question was asked do not count as answers."""
    early = candidate("""
        import os, stat
        def build(model, ctx):
            for fd in range(3, 64):
                try:
                    if stat.S_ISSOCK(os.fstat(fd).st_mode):
                        os.write(fd, bytes(16))
                except OSError:
                    pass
            return {"": model.forward}
        """)
    with pytest.raises(Fault, match="nobody asked for") as caught:
        case.engine.load(early, Tier.SLOW)
    assert caught.value.reason is Reason.CRASHED


def test_requests_of_different_lengths_do_not_touch_each_other(case: Case) -> None:
    together = case.engine.measure(Batch(prompts=PROMPTS, steps=4)).tokens
    alone = [case.engine.measure(Batch(prompts=(prompt,), steps=4)).tokens[0] for prompt in PROMPTS]
    assert together.tolist() == [tokens.tolist() for tokens in alone]


def test_decode_rows_agree_with_prefill_rows(case: Case) -> None:
    text = PROMPTS[0]
    whole = case.engine.score(Batch(prompts=(text,))).outputs[0]
    split = case.engine.score(Batch(prompts=(text[:20],), forced=(text[20:],))).outputs[0]
    assert whole.shape == split.shape == (len(text), case.engine.describe().vocab)
    np.testing.assert_allclose(whole, split, rtol=2e-4, atol=2e-4)


def test_the_reference_is_the_same_model_in_more_precision(case: Case) -> None:
    batch = Batch(prompts=PROMPTS, forced=((1, 2),) * 3)
    reference = case.engine.score(batch, Role.REFERENCE).outputs
    baseline = case.engine.score(batch, Role.BASELINE).outputs
    for r, b in zip(reference, baseline, strict=True):
        assert r.dtype == np.float64
        error = np.linalg.norm(b - r) / np.linalg.norm(r)
        assert 0 < error < 1e-5


def test_the_tiers_are_different_models_on_the_same_weights(case: Case) -> None:
    assert bits(case.engine, Role.BASELINE, Tier.FAST) != bits(case.engine, Role.BASELINE, Tier.SLOW)


def test_a_swap_and_its_restore_give_the_bits_back(case: Case) -> None:
    before = bits(case.engine)
    install(case, "zero_layer")
    assert bits(case.engine) != before
    assert case.engine.activate(BASELINE_ID, Tier.SLOW) < 50
    assert bits(case.engine) == before
    install(case, "same")
    assert bits(case.engine) == before
    case.engine.restore()
    assert bits(case.engine) == before


def test_a_version_belongs_to_the_tier_it_was_built_for(case: Case) -> None:
    version = install(case, "same", Tier.FAST)
    assert bits(case.engine) == bits(case.engine, Role.BASELINE, Tier.FAST)
    with pytest.raises(Fault, match="no version"):
        case.engine.activate(version, Tier.SLOW)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("segfault", Reason.CRASHED),
        ("hang", Reason.TIMEOUT),
        ("exit", Reason.CRASHED),
        ("syntax", Reason.LOAD_ERROR),
        ("no_mapping", Reason.LOAD_ERROR),
        ("raises", Reason.LOAD_ERROR),
        ("writes_weights", Reason.MUTATED_INPUT),
    ],
)
def test_a_fault_has_its_reason_and_the_engine_goes_on(case: Case, name: str, reason: Reason) -> None:
    before = bits(case.engine)
    with pytest.raises(Fault) as caught:
        run(case, name)
    assert caught.value.reason is reason, str(caught.value)
    case.engine.restore()
    assert bits(case.engine) == before
    install(case, "same")
    assert bits(case.engine) == before


def test_a_baseline_that_was_tampered_with_is_found(case: Case) -> None:
    if "rebinds_weights" not in case.candidates:
        pytest.skip("numpy cannot express it")
    before = bits(case.engine)
    install(case, "rebinds_weights")
    with pytest.raises(Fault) as caught:
        case.engine.restore()
    assert caught.value.reason is Reason.MUTATED_INPUT
    assert bits(case.engine) == before


def test_the_line_that_raised_is_named(case: Case) -> None:
    broken = candidate("def build(model, ctx):\n    missing\n")
    with pytest.raises(Fault, match=r"NameError.*forward\.py, line 2"):
        case.engine.load(broken, Tier.SLOW)


def test_a_candidate_may_import_its_own_files(case: Case) -> None:
    files = {
        **case.candidates["same"].files,
        "parts/tools.py": "VALUE = 1\n",
        "forward.py": "from .parts.tools import VALUE\n" + case.candidates["same"].files["forward.py"],
    }
    split = Candidate(files=files)
    before = bits(case.engine)
    case.engine.load(split, Tier.SLOW)
    case.engine.activate(split.id, Tier.SLOW)
    assert bits(case.engine) == before


def test_many_crashes_leave_nothing_behind(case: Case) -> None:
    case.engine.replace(Role.ACTIVE)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(Fault):
            install(case, "exit")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_dead_owner_is_engine_gone_and_can_be_revived(request: pytest.FixtureRequest) -> None:
    settings = config.Engine(model="toy")
    with ProcessEngine("strop.engine.toy", settings) as engine:
        before = bits(engine)
        engine._process.kill()
        engine._process.wait()
        with pytest.raises(EngineGone):
            engine.replace(Role.ACTIVE)
        engine.revive()
        assert bits(engine) == before
        assert engine.owner_starts == 2


@pytest.mark.parametrize(
    ("holder", "model", "says"),
    [
        ("strop.engine.toy", "other", "unknown model"),
        ("strop.engine.torch.holder", "no/such/folder", "unknown model 'no/such/folder'"),
        ("strop.engine.torch.holder", "json:dumps", "loaded|factory"),
        ("strop.engine.torch.holder", "json:nothing", "has no attribute"),
    ],
)
def test_an_unknown_model_is_one_clear_line(holder: str, model: str, says: str) -> None:
    with pytest.raises(StropError, match=says) as caught:
        ProcessEngine(holder, config.Engine(model=model))
    assert "\n" not in str(caught.value)
