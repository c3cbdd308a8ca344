"""A version installed in a plain program: guarded, counted, removable."""

from __future__ import annotations

import warnings

import pytest
import torch

from strop.core import Fingerprint, Guards
from strop.engine.torch.guarded import Handle, install, mismatch
from strop.engine.torch.weights import digest
from tests.support.candidates import candidate
from tests.support.models import spectrum, tiny_llama

GUARDS = Guards("cpu", "float32", max_batch=2, max_context=64)
ZERO_MLP = candidate("""
    import torch
    def build(model, ctx):
        return {"model.layers.1.mlp": lambda x: torch.zeros_like(x)}
    """)
TOKENS = torch.arange(8)[None]


@pytest.fixture
def model() -> torch.nn.Module:
    return tiny_llama().eval().requires_grad_(False)


def logits(model: torch.nn.Module, tokens: torch.Tensor = TOKENS) -> torch.Tensor:
    with torch.inference_mode():
        return model(input_ids=tokens).logits


def installed(model: torch.nn.Module) -> Handle:
    return install(model, ZERO_MLP, GUARDS)


def test_inside_the_guards_the_new_forward_runs(model: torch.nn.Module) -> None:
    before = logits(model)
    handle = installed(model)
    assert not torch.equal(logits(model), before)
    assert (handle.calls, dict(handle.fallbacks)) == (1, {})


@pytest.mark.parametrize(
    ("tokens", "why"),
    [
        (torch.arange(24).view(3, 8), "batch 3 is larger"),
        (torch.arange(80)[None], "context is longer"),
    ],
)
def test_outside_the_guards_the_original_runs(model: torch.nn.Module, tokens: torch.Tensor, why: str) -> None:
    before = logits(model, tokens)
    handle = installed(model)
    with pytest.warns(UserWarning, match=why):
        assert torch.equal(logits(model, tokens), before)
    assert handle.calls == 0
    assert sum(handle.fallbacks.values()) == 1


def test_a_long_generation_falls_back_on_its_way(model: torch.nn.Module) -> None:
    """The cache that the version filled serves the original from the guard's edge on."""
    handle = install(
        model,
        candidate("""
            def build(model, ctx):
                return {f"model.layers.{i}.mlp": layer.mlp.forward
                        for i, layer in enumerate(model.model.layers)}
            """),
        Guards("cpu", "float32", max_batch=1, max_context=20),
    )
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        said = model.generate(TOKENS, max_new_tokens=24, do_sample=False)
    counts = handle.calls, sum(handle.fallbacks.values())
    handle.remove()
    with torch.inference_mode():
        assert torch.equal(model.generate(TOKENS, max_new_tokens=24, do_sample=False), said)
    assert counts == (13, 11)


def test_training_and_gradients_take_the_original(model: torch.nn.Module) -> None:
    handle = installed(model)
    model.requires_grad_(True)
    with pytest.warns(UserWarning, match="gradients are on"):
        model(input_ids=TOKENS).logits.sum().backward()
    assert model.model.layers[1].mlp.up_proj.weight.grad is not None
    model.train()
    with torch.no_grad():
        model(input_ids=TOKENS)
    assert handle.fallbacks["the model is in training mode"] == 1


def test_removing_it_gives_the_bits_back(model: torch.nn.Module) -> None:
    before = logits(model)
    installed(model).remove()
    assert torch.equal(logits(model), before)
    assert "strop" not in model.__dict__


def test_a_module_is_guarded_by_its_exact_shapes() -> None:
    module = spectrum()[0].eval().requires_grad_(False)
    zero = candidate("import torch\ndef build(m, c):\n    return {'head': lambda x: x[:, :3] * 0}\n")
    handle = install(module, zero, Guards("cpu", "float32", 0, 0, ((2, 4, 64),)))
    with torch.inference_mode():
        assert module(torch.ones(2, 4, 64))["scores"].abs().sum() == 0
        with pytest.warns(UserWarning, match="were not verified"):
            assert module(torch.ones(1, 4, 64))["scores"].abs().sum() > 0
    assert handle.calls == 1


def test_other_weights_and_other_versions_are_named(model: torch.nn.Module) -> None:
    here = Fingerprint("torch", "cpu", 2, 2, "float32", digest(model))
    assert mismatch(model, here) == ""
    old = Fingerprint("torch", "cpu", 2, 2, "float32", digest(model), versions={"torch": "1.0"})
    assert "torch is" in mismatch(model, old)
    model.model.norm.weight.data[0] += 1
    assert "weights are not the ones" in mismatch(model, here)
