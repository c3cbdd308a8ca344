"""The house rules that a machine can check: layers, sizes, imports, words."""

from __future__ import annotations

import ast
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from strop.core import Reason
from strop.engine.contract import Engine

FUNCTION_LINES = 60
FILE_LINES = 400
MEDIAN_FILE_LINES = 150
TOTAL_LINES = 16_000
"""All sources under strop/. Raising it is a decision, not a habit: first look for what can go."""
HELP_SECONDS = 0.3

RESERVED: dict[Reason, str] = {
    Reason.CAPTURE_ERROR: "CUDA graph capture: the CPU engines capture nothing",
    Reason.SLO_REGRESSION: "served traffic: the engines so far run batches, not a server",
}
"""Reasons that nothing in strop gives yet, and what each waits for."""

VERBS = {
    "describe",
    "load",
    "activate",
    "measure",
    "score",
    "sample",
    "restore",
    "health",
    "replace",
    "revive",
    "jail",
    "close",
}
ROOT = Path(__file__).parents[1]
SOURCES = {".py", ".cpp", ".cu", ".h", ".html", ".css", ".js"}
IMPLICIT = {"self", "cls"}
HEAVY = {"torch", "transformers", "safetensors", "accelerate"}
MACHINE_PATHS = re.compile(r"(?<![\w.])/" + r"work/" + r"|/tmp/" + r"w\b")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources(*suffixes: str) -> list[Path]:
    found = (ROOT / "strop").rglob("*")
    return sorted(path for path in found if path.is_file() and path.suffix in (suffixes or SOURCES))


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def place(path: Path, node: ast.AST | None = None) -> str:
    line = f":{node.lineno}" if isinstance(node, ast.stmt) else ""
    return f"{path.relative_to(ROOT)}{line}"


def imported(module: ast.Module) -> set[str]:
    """Full names of what a module imports, at any depth and under TYPE_CHECKING too."""
    names: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def public_functions(body: list[ast.stmt]) -> Iterator[Function]:
    """Public functions and public methods of public classes; local functions are not public."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public_functions(node.body)
        elif isinstance(node, Function) and not node.name.startswith("_"):
            yield node


def unannotated(function: Function) -> list[str]:
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    found = [arg.arg for arg in every if arg and not arg.annotation and arg.arg not in IMPLICIT]
    return found if function.returns else [*found, "return"]


def run(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    script = "import sys; from importlinter.cli import lint_imports as lint; "
    return run("-c", script + "sys.exit(lint(no_cache=True))", cwd=folder)


def test_imports_go_down_the_layers() -> None:
    done = lint_imports(ROOT)
    if done.returncode:
        pytest.fail(done.stdout + done.stderr, pytrace=False)


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("core", "from strop import config", "Imports go down the layers"),
        ("gate/planted", "from strop.measure import step", "Imports go down the layers"),
        ("planted", "import json", "Imports go down the layers"),
        ("plan/planted", "def f():\n    import torch", "torch and transformers stay"),
        ("dash/planted", "import typing\nif typing.TYPE_CHECKING:\n    import transformers.utils",
         "torch and transformers stay"),
        ("propose/rewrites/planted", "from strop.core import Reason", "stands alone"),
    ],
    ids=["upward", "sideways", "no layer", "torch inside a function", "type checking", "candidate"],
)  # fmt: skip
def test_a_forbidden_import_is_found(tmp_path: Path, module: str, line: str, contract: str) -> None:
    shutil.copytree(ROOT / "strop", tmp_path / "strop", ignore=shutil.ignore_patterns("data"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / f"strop/{module}.py").open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    done = lint_imports(tmp_path)
    assert done.returncode == 1
    # A module without a layer ends the run at once, with no table of contracts.
    assert re.search(rf"{contract}.*BROKEN", done.stdout) or "strop.planted" in done.stdout


def test_functions_can_be_seen_at_once() -> None:
    sizes = {
        f"{place(path, node)} {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for path in sources(".py")
        for node in ast.walk(tree(path))
        if isinstance(node, Function)
    }
    assert sizes
    assert {name: size for name, size in sizes.items() if size > FUNCTION_LINES} == {}


def test_files_are_small(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {place(path): lines(path) for path in sources()}
    total, median = sum(sizes.values()), statistics.median(sizes.values())
    with capsys.disabled():
        print(f"\nstrop/: {total:,} lines of {TOTAL_LINES:,}, {len(sizes)} files, median {median:g}")
    assert {name: size for name, size in sizes.items() if size > FILE_LINES} == {}
    assert median <= MEDIAN_FILE_LINES
    assert total <= TOTAL_LINES


def test_every_module_says_what_it_is() -> None:
    silent = [place(path) for path in sources(".py") if not ast.get_docstring(tree(path))]
    assert silent == []


def test_public_functions_are_annotated_and_documented() -> None:
    faults = []
    for path in sources(".py"):
        for function in public_functions(tree(path).body):
            name = f"{place(path, function)} {function.name}"
            faults += [f"{name}: {argument} has no annotation" for argument in unannotated(function)]
            if not ast.get_docstring(function):
                faults.append(f"{name}: no docstring")
    assert faults == []


def test_the_command_line_does_not_import_torch() -> None:
    done = run("-c", "import sys, strop.cli; print(*sys.modules, sep='\\n')")
    assert done.returncode == 0, done.stderr
    assert HEAVY.isdisjoint(done.stdout.split())


def test_help_is_instant() -> None:
    def once() -> float:
        start = time.perf_counter()
        done = run("-c", "import sys; from strop.cli import main; sys.exit(main())", "--help")
        took = time.perf_counter() - start
        assert done.returncode == 0, done.stderr
        assert "Usage" in done.stdout
        return took

    assert min(once() for _ in range(5)) < HELP_SECONDS


def test_the_engine_has_eight_verbs_and_a_sampler() -> None:
    assert {name for name in vars(Engine) if not name.startswith("_")} == VERBS


def test_unit_tests_name_no_heavy_package() -> None:
    heavy_support = {
        f"tests.support.{path.stem}"
        for path in (ROOT / "tests/support").glob("*.py")
        if {name.split(".")[0] for name in imported(tree(path))} & HEAVY
    }
    assert heavy_support, "some support module builds a torch model"
    for path in (ROOT / "tests/unit").rglob("*.py"):
        names = imported(tree(path))
        assert HEAVY.isdisjoint(name.split(".")[0] for name in names), place(path)
        assert heavy_support.isdisjoint(names), place(path)


def test_unit_tests_load_no_torch() -> None:
    """The same through everything that they import at the top."""
    collect = "import sys, pytest; code = pytest.main(['--collect-only', '-qq', 'tests/unit']); "
    done = run("-c", collect + "sys.exit(code or 10 * ('torch' in sys.modules))")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")
def test_no_file_names_a_machine_path() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    texts = {path: path.read_bytes() for path in files if path.is_file()}
    assert Path(__file__) in texts
    named = [
        place(path)
        for path, content in texts.items()
        if b"\0" not in content and MACHINE_PATHS.search(content.decode(errors="replace"))
    ]
    assert named == []


def test_every_reason_is_given_somewhere_or_waits_for_something() -> None:
    given = {
        node.attr
        for path in sources(".py")
        if path.name != "core.py"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Reason"
    }
    missing = {reason for reason in Reason if reason.name not in given}
    assert missing == set(RESERVED)
