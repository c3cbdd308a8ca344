"""Options become candidates that stand alone. Nothing here needs torch."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from itertools import chain

import pytest

from strop.core import Candidate, StropError
from strop.propose.compose import compose, compose_flags, compose_vllm
from strop.propose.rewrites import space
from strop.propose.rewrites.space import Option, Value

EVERY_CHOICE = [
    {"scope": scope, option.name: choice}
    for scope in ("modules", "whole")
    for option in space.SPACE
    if option.name != "scope"
    for choice in option.choices
]


EVERY_VLLM_CHOICE = [{option.name: choice} for option in space.VLLM for choice in option.choices]


def manifest(candidate: Candidate) -> dict[str, object]:
    return tomllib.loads(candidate.files["manifest.toml"])


def imported(source: str) -> set[str]:
    """Names of sibling files that a source imports."""
    nodes = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ImportFrom) and n.level]
    return {
        f"{name}.py"
        for node in nodes
        for name in ([node.module] if node.module else [alias.name for alias in node.names])
    }


@pytest.mark.parametrize("options", [*EVERY_CHOICE, *space.FIRST], ids=str)
def test_a_candidate_carries_what_it_imports_and_knows_nothing_of_strop(
    options: Mapping[str, Value],
) -> None:
    candidate = compose(options, "search")
    sources = {name: text for name, text in candidate.files.items() if name.endswith(".py")}
    needed = set(chain.from_iterable(map(imported, sources.values())))
    # precision.py and native.py are imported only where an option asks for them.
    optional = {"precision.py", "native.py"} - sources.keys()
    assert needed - optional <= sources.keys()
    assert not any("strop" in line for text in sources.values() for line in text.splitlines())


def test_files_of_other_choices_stay_out() -> None:
    assert "native.py" not in compose({"scope": "whole"}, "a").files
    assert {"native.py", "decode.cpp", "product.h"} <= compose(
        {"scope": "whole", "decode": "native"}, "a"
    ).files.keys()
    modules = compose({"linear": "onednn"}, "a").files.keys()
    assert "llama.py" not in modules
    assert "modules.py" in modules


def test_options_reach_build_and_the_manifest() -> None:
    candidate = compose({"scope": "whole", "linear": "packed2", "threads": 1}, "me", "f" * 64)
    assert '        linear="packed2",\n' in candidate.files["forward.py"]
    assert '        norm="hand",\n' in candidate.files["forward.py"]
    assert "threads" not in candidate.files["forward.py"]
    assert manifest(candidate) == {
        "author": "me",
        "parent": "f" * 64,
        "precision": "same",
        "threads": 1,
        "description": "llama: linear packed2, head aten, qkv separate, mlp separate, norm hand, "
        "decode sdpa, prefill sdpa",
    }
    assert (candidate.author, candidate.parent) == ("me", "f" * 64)


def test_the_same_options_are_the_same_candidate() -> None:
    assert compose({"scope": "whole"}, "a").id == compose({"linear": "aten", "scope": "whole"}, "a").id
    assert compose({"linear": "onednn"}, "a").id != compose({"linear": "onednn2"}, "a").id


def test_options_that_do_not_count_for_modules_change_nothing() -> None:
    plain = compose({"linear": "onednn"}, "a")
    assert compose({"linear": "onednn", "decode": "native", "head": "int8"}, "a").id == plain.id


def test_neutral_choices_keep_modules() -> None:
    source = compose({"linear": "onednn", "norm": "fused"}, "a").files["forward.py"]
    assert 'mlp="keep"' in source
    assert 'norm="fused"' in source


@pytest.mark.parametrize(
    ("options", "declared"),
    [
        ({"linear": "bf16"}, "bf16"),
        ({"scope": "whole", "linear": "bf16", "head": "int8"}, "int8"),
        ({"scope": "whole", "head": "packed"}, "same"),
    ],
)
def test_a_change_of_precision_is_declared(options: Mapping[str, Value], declared: str) -> None:
    assert manifest(compose(options, "a"))["precision"] == declared


def test_choices_that_change_the_precision_need_an_opt_in() -> None:
    assert "int8" not in space.choices(space.SPACE)["linear"]
    assert "int8" in space.choices(space.SPACE, any_precision=True)["linear"]
    assert space.choices(space.FLAGS)["threads"] == (0, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"warp": 9}, "no option 'warp'; known: scope, linear"),
        ({"linear": "mkl"}, "option linear: one of aten, onednn"),
        ({"threads": True}, "option threads: one of 0, 1"),
        ({"threads": "1"}, "option threads: one of 0, 1"),
    ],
)
def test_a_wrong_option_is_named(options: Mapping[str, Value], message: str) -> None:
    with pytest.raises(StropError, match=message):
        compose(options, "a")


def test_an_author_may_be_called_anything() -> None:
    name = 'Ann "\\" O\'Neil\nprecision = "int8"'
    read = manifest(compose({"linear": "onednn"}, name))
    assert (read["author"], read["precision"]) == (name, "same")


def test_flags_are_candidates_too() -> None:
    candidate = compose_flags({"attention": "eager", "compile": "default"}, "a")
    assert candidate.files.keys() == {"forward.py", "flags.py", "manifest.toml"}
    assert 'compile="default"' in candidate.files["forward.py"]
    with pytest.raises(StropError, match="no option 'linear'"):
        compose_flags({"linear": "onednn"}, "a")


@pytest.mark.parametrize("options", [*EVERY_VLLM_CHOICE, *space.VLLM_FIRST], ids=str)
def test_a_candidate_for_vllm_carries_what_it_imports(options: Mapping[str, Value]) -> None:
    files = compose_vllm(options, "search").files
    sources = {name: text for name, text in files.items() if name.endswith(".py")}
    needed = set(chain.from_iterable(map(imported, sources.values())))
    asked = set(options.values())
    used = {
        "skinny.py": any(options.get(name) == "triton" for name in ("qkv", "o", "gate_up", "down"))
        or "fused" in asked,
        "fused_norm.py": options.get("norm") == "triton",
    }
    assert needed - {name for name, is_used in used.items() if not is_used} <= sources.keys()
    assert ("skinny.py" in sources, "fused_norm.py" in sources) == tuple(used.values())
    assert ("jit.py" in sources) == any(used.values())
    assert not any("strop" in line for text in sources.values() for line in text.splitlines())


def test_the_phase_of_a_candidate_for_vllm_is_in_its_manifest() -> None:
    decode = compose_vllm({"down": "triton", "down_tile": "4x512"}, "me", "f" * 64)
    assert manifest(decode) == {
        "author": "me",
        "parent": "f" * 64,
        "precision": "same",
        "phase": "decode",
        "description": "decoder: qkv native, o native, gate_up native, down triton, down_tile 4x512, "
        "norm native, mlp native, rotary native",
    }
    assert '        down_tile="4x512",\n' in decode.files["forward.py"]
    both = compose_vllm({"down": "triton", "down_tile": "4x512", "phase": "all"}, "me", "f" * 64)
    assert "phase" not in manifest(both)
    assert "phase" not in both.files["forward.py"]
    assert both.id != decode.id


def test_tiles_count_where_their_kernel_is_used() -> None:
    def same(one: Mapping[str, Value], other: Mapping[str, Value]) -> bool:
        return compose_vllm(one, "a").id == compose_vllm(other, "a").id

    assert same({"qkv": "torch"}, {"qkv": "torch", "qkv_tile": "4x512"})
    assert not same({"qkv": "triton"}, {"qkv": "triton", "qkv_tile": "4x512"})
    assert same({"mlp": "fused"}, {"mlp": "fused", "gate_up": "triton"})
    assert not same({"mlp": "fused"}, {"mlp": "fused", "gate_up_tile": "4x512"})
    with pytest.raises(StropError, match="option qkv_tile: one of 1x1024"):
        compose_vllm({"qkv_tile": "3x7"}, "a")


def test_every_option_says_what_it_means_and_offers_a_choice() -> None:
    options: tuple[Option, ...] = (*space.SPACE, *space.FLAGS, *space.VLLM)
    for option in options:
        assert option.meaning
        assert len(option.choices) == len(set(option.choices)) > 1


def test_composing_needs_no_torch() -> None:
    code = "import sys, strop.propose.compose as c; c.compose({}, 'a'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
