"""The corpus: candidates that must be refused, and candidates that must pass.

Each is a file that is its own forward.py. Its docstring says what it tries; comments under it say
the rest: `refused as`, `caught by`, `only` (no other check would refuse it), `manifest`, `model`,
`policy`.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from strop.core import Candidate, Status, Verdict
from strop.propose.compose import compose

__all__ = ["GPU_ONLY", "Entry", "Seen", "attacks", "good", "wrong"]

ATTACKS = Path(__file__).parents[1] / "attacks"

GPU_ONLY = (
    "L2 persistence",
    "patched torch.cuda.synchronize and events",
    "over-limit shared memory",
    "eager-only code that breaks under graph capture",
    "rank-divergent outputs",
)
"""Families that a CPU engine cannot express; they come with the CUDA engine."""

NOISY = ("speed", "fair_baseline")
"""Checks that refuse without saying more, where the machine is too noisy for that."""

COMPOSED: tuple[Mapping[str, str | int], ...] = (
    {"scope": "whole"},
    {"scope": "whole", "qkv": "fused"},
    {"scope": "whole", "mlp": "fused"},
    {"scope": "whole", "norm": "fused"},
    {"scope": "whole", "decode": "matmul"},
    {"scope": "whole", "decode": "native"},
    {"scope": "whole", "prefill": "blocked"},
    {
        "scope": "whole",
        "linear": "packed2",
        "qkv": "fused",
        "mlp": "fused",
        "norm": "fused",
        "decode": "native",
    },
)
"""The built-in search's own rewrites, which know the whole family of models: those whose gain does
not depend on the processor."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One candidate of the corpus."""

    name: str
    what: str
    candidate: Candidate
    model: str = "wasteful_smollm2"
    policy: str = "tolerance"
    """tolerance, bit_exact, or precision: tolerance with the opt-in."""
    reasons: tuple[str, ...] = ()
    """Reasons, or "inconclusive" where noise may hide that nothing is faster. Empty for a good one."""
    checks: tuple[str, ...] = ()
    """Those that may catch it: a check of the list, `build` or `run`."""
    only: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """What is kept of a verdict."""

    status: str
    reason: str
    """The status where there is no other."""
    last: str
    """The check that it ended at."""
    detail: str
    seconds: float
    ratio: float | None
    jail: int

    @classmethod
    def of(cls, verdict: Verdict) -> Seen:
        """Take from a verdict what the tables need."""
        return cls(
            status=verdict.status.value,
            reason=verdict.reason.value if verdict.reason else verdict.status.value,
            last=verdict.checks[-1].name,
            detail=verdict.detail,
            seconds=round(verdict.seconds, 3),
            ratio=verdict.slow.overall.ratio if verdict.slow else None,
            jail=len(verdict.jail),
        )


def wrong(entry: Entry, seen: Seen) -> str:
    """Say what is wrong with how an entry was judged; "" when it is as it should be."""
    if not entry.reasons:
        accepted = seen.status == Status.PASSED.value
        return "" if accepted else f"a good candidate was refused by {seen.last}: {seen.detail}"
    if seen.status == Status.PASSED.value:
        return "an attack was accepted"
    if seen.status == Status.INCONCLUSIVE.value and seen.last in NOISY:
        return ""  # so much noise that not even its gain was proven
    if seen.reason not in entry.reasons:
        return f"refused as {seen.reason}, not as {' or '.join(entry.reasons)}: {seen.detail}"
    if seen.last not in entry.checks:
        return f"caught by {seen.last}, not by {' or '.join(entry.checks)}: {seen.detail}"
    return ""


def attacks() -> list[Entry]:
    """Return what must be refused."""
    return [_read(path) for path in sorted((ATTACKS / "corpus").glob("*.py"))]


def good() -> list[Entry]:
    """Return what must pass."""
    found = [_read(path) for path in sorted((ATTACKS / "good").glob("*.py"))]
    for options in COMPOSED:
        name = "_".join(f"{key}_{value}" for key, value in options.items())
        found.append(Entry(name, "The built-in search's own rewrite.", compose(options, "search")))
    return found


def _read(path: Path) -> Entry:
    text = path.read_text(encoding="utf-8")
    said = {}
    for line in text.splitlines():
        key, colon, value = line.removeprefix("# ").partition(": ")
        if line.startswith("# ") and colon:
            said[key] = value
        elif line.startswith(("import", "from", "def", "class")):
            break
    files = {"forward.py": text, "manifest.toml": said.get("manifest", "") + "\n"}
    return Entry(
        name=path.stem,
        what=ast.get_docstring(ast.parse(text)) or "",
        candidate=Candidate(files, author="corpus"),
        model=said.get("model", "wasteful_smollm2"),
        policy=said.get("policy", "tolerance"),
        reasons=tuple(said["refused as"].split(", ")) if "refused as" in said else (),
        checks=tuple(said["caught by"].split(", ")) if "caught by" in said else (),
        only="only" in said,
    )
