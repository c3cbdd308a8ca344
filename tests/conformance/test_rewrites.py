"""Every rewrite computes what the model computes, takes its caches and gives its own back."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)
from transformers.cache_utils import DynamicCache, StaticCache

from strop.core import Candidate
from strop.engine.torch.versions import cache_name
from strop.engine.torch.weights import attach, digest, seal
from strop.propose.compose import compose, compose_flags
from strop.propose.rewrites import space
from strop.propose.rewrites.cache import PreallocatedLayer

CACHE = cache_name(LlamaForCausalLM.__new__(LlamaForCausalLM))
NEEDS_COMPILER = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
EVERYTHING = dict(space.FIRST[-1])
WHOLE = [
    {"scope": "whole", option.name: choice}
    for option in space.SPACE
    if option.name in ("linear", "head", "qkv", "mlp", "norm", "decode", "prefill")
    for choice in option.choices
    if choice not in option.precision
]
MODULES = [
    {"linear": "onednn"},
    {"linear": "packed2"},
    {"norm": "fused"},
    {"linear": "onednn", "mlp": "fused"},
]
SIZES = dict(
    vocab_size=97,
    hidden_size=42,
    intermediate_size=72,
    num_hidden_layers=3,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=12,
    max_position_embeddings=1024,
    initializer_range=0.2,
)
"""Odd on purpose: nothing is a multiple of a vector, heads * head_dim is not the hidden size."""


def llama(**changes: Any) -> nn.Module:
    torch.manual_seed(1)
    return LlamaForCausalLM(LlamaConfig(**{**SIZES, **changes})).eval().requires_grad_(False)


@pytest.fixture
def model() -> nn.Module:
    """A Llama whose weights are mapped read-only, as an engine's are."""
    made = llama()
    sealed = seal(made)
    attach(made, sealed)
    made.sealed = sealed  # keeps the mapping's descriptor
    return made


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Callable[..., Mapping[str, Any]]]:
    names: list[str] = []

    def import_and_build(model: nn.Module, made: Candidate, precision: str = "same") -> Any:
        package = f"candidate_{tmp_path.name}_{len(names)}"
        folder = tmp_path / package
        for name, text in made.files.items():
            folder.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_loader(package, None, is_package=True)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        module.__path__ = [str(folder)]
        sys.modules[package] = module
        names.append(package)
        context = SimpleNamespace(
            precision=precision, cache_name=CACHE, max_context=128, threads=2, dtype="float32"
        )
        with torch.no_grad():
            return importlib.import_module(f"{package}.forward").build(model, context)

    yield import_and_build
    for name in [n for n in sys.modules if n.partition(".")[0] in names]:
        del sys.modules[name]


def tokens(batch: int, count: int) -> torch.Tensor:
    return torch.randint(0, 97, (batch, count), generator=torch.Generator().manual_seed(count))


def call(forward: Callable[..., Any], ids: torch.Tensor, cache: Any = None, **more: Any) -> Any:
    with torch.inference_mode():
        return forward(**{"input_ids": ids, CACHE: cache, "use_cache": True, **more})


def install(model: nn.Module, forwards: Mapping[str, Any]) -> None:
    for path, forward in forwards.items():
        model.get_submodule(path).forward = forward


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(got, want.to(got.dtype), rtol=1e-4, atol=1e-4)


def rollout(forward: Callable[..., Any], prompt: int, batch: int = 2) -> torch.Tensor:
    """Logits of a prefill, a prefill in a second chunk, and four decode steps."""
    ids = tokens(batch, prompt + 9)
    parts, cache = [], None
    for start, end in (
        (0, prompt),
        (prompt, prompt + 5),
        *((i, i + 1) for i in range(prompt + 5, prompt + 9)),
    ):
        out = call(forward, ids[:, start:end], cache)
        parts.append(out.logits)
        cache = out[CACHE]
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize("options", [*WHOLE, *MODULES, EVERYTHING], ids=str)
def test_rounds_no_worse_than_the_model_itself(model: nn.Module, build: Any, options: Any) -> None:
    reference = rollout(copy.deepcopy(llama()).double().forward, 30)
    baseline = rollout(model.forward, 30).double()
    install(model, build(model, compose(options, "test")))
    got = rollout(model.forward, 30).double()
    assert got.shape == reference.shape
    error = lambda x: ((x - reference).norm(dim=-1) / reference.norm(dim=-1)).median()  # noqa: E731
    assert 0 < error(got) < 2 * error(baseline)


@pytest.mark.parametrize("options", [{"scope": "whole"}, EVERYTHING], ids=str)
def test_long_prompts_cross_blocks_and_buffers(model: nn.Module, build: Any, options: Any) -> None:
    want = rollout(model.forward, 700, batch=1)
    close(rollout(build(model, compose(options, "test"))[""], 700, batch=1), want)


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 7])
@NEEDS_COMPILER
def test_the_compiled_step_serves_any_batch(model: nn.Module, build: Any, batch: int) -> None:
    forward = build(model, compose({"scope": "whole", "decode": "native"}, "test"))[""]
    close(rollout(forward, 20, batch), rollout(model.forward, 20, batch))


@pytest.mark.parametrize("threads", [1, 3])
@NEEDS_COMPILER
def test_the_compiled_step_serves_any_number_of_threads(model: nn.Module, build: Any, threads: int) -> None:
    forward = build(model, compose({"scope": "whole", "decode": "native"}, "test"))[""]
    want, before = rollout(model.forward, 1), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        close(rollout(forward, 1), want)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("decode", ["sdpa", "matmul", pytest.param("native", marks=NEEDS_COMPILER)])
@pytest.mark.parametrize("positions", [True, False])
def test_padding_on_the_left(model: nn.Module, build: Any, decode: str, positions: bool) -> None:
    forward = build(model, compose({"scope": "whole", "decode": decode}, "test"))[""]
    ids, pad = tokens(3, 14), torch.tensor([0, 9, 4])
    mask = (torch.arange(14)[None] >= pad[:, None]).long()
    where = (torch.arange(14)[None] - pad[:, None]).clamp_min(0)
    caches: list[Any] = [None, None]
    for start, end in ((0, 11), (11, 12), (12, 13), (13, 14)):
        more: dict[str, Any] = {"attention_mask": mask[:, :end]}
        if positions:
            more["position_ids"] = where[:, start:end]
        outs = [
            call(f, ids[:, start:end], c, **more)
            for f, c in zip((model.forward, forward), caches, strict=True)
        ]
        caches = [out[CACHE] for out in outs]
        real = mask[:, start:end].bool()
        close(outs[1].logits[real], outs[0].logits[real])


@pytest.mark.parametrize("keep", [0, 1, 3, 99, torch.tensor([0, 4])], ids=str)
def test_only_the_asked_logits_are_given(model: nn.Module, build: Any, keep: Any) -> None:
    forward = build(model, compose(EVERYTHING, "test"))[""]
    want = call(model.forward, tokens(2, 6), logits_to_keep=keep).logits
    close(call(forward, tokens(2, 6), logits_to_keep=keep).logits, want)


@pytest.mark.parametrize("options", [{"scope": "whole"}, EVERYTHING], ids=str)
def test_caches_pass_between_the_original_and_the_rewrite(model: nn.Module, build: Any, options: Any) -> None:
    forward = build(model, compose(options, "test"))[""]
    ids, original = tokens(2, 12), model.forward
    want = call(original, ids).logits
    cache, parts = None, []
    for i, f in enumerate((original, forward, forward, original, forward, original)):
        out = call(f, ids[:, 2 * i : 2 * i + 1], cache)
        cache = out[CACHE]
        out2 = call(f, ids[:, 2 * i + 1 : 2 * i + 2], cache)
        cache = out2[CACHE]
        parts += [out.logits, out2.logits]
    close(torch.cat(parts, dim=1), want)


def test_a_cache_given_empty_is_the_one_that_comes_back(model: nn.Module, build: Any) -> None:
    forward = build(model, compose(EVERYTHING, "test"))[""]
    for given in (DynamicCache(), DynamicCache(config=model.config)):
        out = call(forward, tokens(1, 5), given)
        assert out[CACHE] is given
        assert given.get_seq_length() == 5
        assert given.layers[0].keys.shape == (1, 2, 5, 12)


@pytest.mark.parametrize("options", [{"scope": "whole"}, EVERYTHING], ids=str)
@pytest.mark.parametrize("how", [{}, {"num_beams": 3}], ids=["greedy", "beams"])
def test_generate_gives_the_same_tokens(model: nn.Module, build: Any, options: Any, how: Any) -> None:
    ids = tokens(2, 7)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1]])
    settings = {"attention_mask": mask, "max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    want = model.generate(ids, **settings, **how)
    install(model, build(model, compose(options, "test")))
    assert torch.equal(model.generate(ids, **settings, **how), want)


def test_generate_runs_the_rewrite_and_not_the_model_behind_it(
    model: nn.Module, build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silent fall back to the original would be correct, and no gain."""
    install(model, build(model, compose({"scope": "whole"}, "test")))

    def original(*_: Any, **__: Any) -> None:
        raise AssertionError("the original forward ran")

    monkeypatch.setattr(type(model.model), "forward", original)
    said = model.generate(tokens(1, 5), max_new_tokens=3, do_sample=False, pad_token_id=0)
    assert said.shape[1] > 5


def test_a_cache_filled_in_inference_mode_may_be_used_outside_it(model: nn.Module, build: Any) -> None:
    forward = build(model, compose(EVERYTHING, "test"))[""]
    ids = tokens(1, 6)
    cache = call(forward, ids[:, :5])[CACHE]
    with torch.no_grad():
        out = forward(**{"input_ids": ids[:, 5:], CACHE: cache, "use_cache": True})
    close(out.logits, call(model.forward, ids).logits[:, 5:])


def test_what_is_not_covered_goes_to_the_original(model: nn.Module, build: Any) -> None:
    forward, ids = build(model, compose(EVERYTHING, "test"))[""], tokens(1, 6)
    embedded = model.model.embed_tokens(ids)
    asked: list[dict[str, Any]] = [
        {"input_ids": None, "inputs_embeds": embedded},
        {"labels": ids},
        {"output_hidden_states": True},
        {"attention_mask": torch.zeros(1, 1, 6, 6)},
        {CACHE: StaticCache(config=model.config, max_cache_len=16)},
    ]
    for more in asked:
        want = call(model.forward, ids, **copy.deepcopy(more))
        got = call(forward, ids, **more)
        assert torch.equal(got.logits, want.logits)
        assert got.keys() == want.keys()


def test_no_weight_and_no_input_is_written(model: nn.Module, build: Any) -> None:
    before, ids = digest(model), tokens(2, 9)
    kept = ids.clone()
    out = call(build(model, compose(EVERYTHING, "test"))[""], ids)
    call(build(model, compose(EVERYTHING, "test"))[""], ids[:, :1], out[CACHE])
    assert digest(model) == before
    assert torch.equal(ids, kept)


def test_a_model_cut_to_its_first_layers(build: Any) -> None:
    short = llama(num_hidden_layers=2)
    whole = llama()
    whole.model.layers = whole.model.layers[:2]
    whole.config.num_hidden_layers = 2
    short.load_state_dict(whole.state_dict())
    forward = build(whole, compose(EVERYTHING, "test"))[""]
    close(rollout(forward, 8), rollout(short.forward, 8))


YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}


@pytest.mark.parametrize("options", [{"scope": "whole"}, EVERYTHING], ids=str)
@pytest.mark.parametrize(
    "make",
    [
        lambda: llama(attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
        lambda: llama(num_key_value_heads=6),
        lambda: llama(rope_parameters=YARN),
        lambda: llama(rope_parameters=LLAMA3),
        lambda: MistralForCausalLM(MistralConfig(**SIZES, sliding_window=None)).eval(),
        lambda: Qwen2ForCausalLM(
            Qwen2Config(**{**SIZES, "head_dim": 14, "num_attention_heads": 3, "num_key_value_heads": 1})
        ).eval(),
    ],
    ids=["biases", "mha", "yarn", "llama3", "mistral", "qwen2"],
)
def test_the_rest_of_the_family(build: Any, make: Any, options: Any) -> None:
    model = make().requires_grad_(False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    forward = build(model, compose(options, "test"))[""]
    close(rollout(forward, 40), rollout(model.forward, 40))


def test_other_models_are_refused(build: Any) -> None:
    gpt2 = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=9, n_positions=16))
    with pytest.raises(ValueError, match="GPT2LMHeadModel is not of the Llama family"):
        build(gpt2, compose({"scope": "whole"}, "test"))
    windowed = MistralForCausalLM(MistralConfig(**SIZES, sliding_window=16))
    with pytest.raises(ValueError, match="sliding-window"):
        build(windowed, compose({"scope": "whole"}, "test"))
    with pytest.raises(ValueError, match="'dynamic' are not covered"):
        build(llama(rope_parameters=DYNAMIC), compose({"scope": "whole"}, "test"))
    with pytest.raises(ValueError, match="replace no module"):
        build(gpt2, compose({"norm": "fused"}, "test"))


@pytest.mark.parametrize(("kind", "bound"), [("bf16", 0.05), ("int8", 0.2)])
@pytest.mark.parametrize("scope", ["modules", "whole"])
def test_precision_changes_only_where_it_may(
    model: nn.Module, build: Any, kind: str, bound: float, scope: str
) -> None:
    made = compose({"scope": scope, "linear": kind}, "test")
    with pytest.raises(ValueError, match=f"{kind} changes the precision"):
        build(model, made)
    want = rollout(model.forward, 20)
    install(model, build(model, made, precision="any"))
    got = rollout(model.forward, 20)
    assert got.dtype == torch.float32
    assert 1e-4 < (got - want).norm() / want.norm() < bound


@pytest.mark.parametrize(
    "flags", [{"attention": "eager"}, {"cache": "static"}, {"attention": "sdpa"}], ids=str
)
def test_flags_change_the_way_and_not_the_result(model: nn.Module, build: Any, flags: Any) -> None:
    want, ids = rollout(model.forward, 20), tokens(1, 4)
    forward = build(model, compose_flags(flags, "test"))[""]
    close(rollout(forward, 20), want)
    assert model.config._attn_implementation == "sdpa"
    static = isinstance(call(forward, ids)[CACHE], StaticCache)
    assert static == (flags.get("cache") == "static")


class TestPreallocatedLayer:
    """Against transformers' own layer, through every way it may be changed from outside."""

    def pair(self) -> tuple[DynamicCache, DynamicCache]:
        ours, theirs = DynamicCache(), DynamicCache()
        ours.layer_class_to_replicate = PreallocatedLayer
        self.append(ours, theirs, batch=2, count=5)
        return ours, theirs

    def append(self, *caches: DynamicCache, batch: int, count: int) -> None:
        k, v = torch.randn(2, batch, 3, count, 4)
        for cache in caches:
            cache.update(k, v, 0)
        for name in ("keys", "values"):
            one, other = (getattr(cache.layers[0], name) for cache in caches)
            assert torch.equal(one, other)

    @pytest.mark.parametrize(
        ("change", "batch"),
        [
            (lambda cache: None, 2),
            (lambda cache: cache.crop(-2), 2),
            (lambda cache: cache.reorder_cache(torch.tensor([1, 0])), 2),
            (lambda cache: cache.batch_repeat_interleave(3), 6),
            (lambda cache: cache.batch_select_indices(torch.tensor([1])), 1),
            (lambda cache: cache.reset(), 4),
        ],
        ids=["nothing", "crop", "reorder", "repeat", "select", "reset"],
    )
    def test_goes_on_after(self, change: Callable[[DynamicCache], None], batch: int) -> None:
        ours, theirs = self.pair()
        change(ours)
        change(theirs)
        if (shown := theirs.layers[0].keys) is not None and shown.shape[0] == 2:
            batch = 2  # transformers 5.17 resets to zeros of the same batch, 5.24 to nothing
        for count in (1, 3, 400, 1, 700):
            self.append(ours, theirs, batch=batch, count=count)
            assert ours.get_seq_length() == theirs.get_seq_length()

    def test_a_copy_is_independent(self) -> None:
        ours, theirs = self.pair()
        twin = copy.deepcopy(ours)
        self.append(ours, theirs, batch=2, count=1)
        kept = ours.layers[0].keys.clone()
        twin.update(torch.zeros(2, 3, 1, 4), torch.zeros(2, 3, 1, 4), 0)
        assert torch.equal(ours.layers[0].keys, kept)

    def test_appending_moves_nothing_while_there_is_room(self) -> None:
        ours, theirs = self.pair()
        address = ours.layers[0].keys.data_ptr()
        for _ in range(100):
            self.append(ours, theirs, batch=2, count=1)
        assert ours.layers[0].keys.data_ptr() == address
