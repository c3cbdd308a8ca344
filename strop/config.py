"""A deployment: one TOML file, resolved once into frozen dataclasses. Unknown keys are errors."""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from strop.core import StropError, TokenSource

__all__ = ["Deployment", "Engine", "Policy", "Search", "Slo", "Traffic", "load", "state_dir", "template"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Engine:
    """Which engine holds the model, and how."""

    model: str
    """A local folder, `package:factory`, or a short name such as `smollm2`."""
    kind: str = "torch"
    device: str = "cpu"
    dtype: str = "float32"
    threads: int = 0
    """Intra-op threads; 0 means one per core."""
    fast_layers: int = 0
    """K of the fast tier; 0 means a fifth of the layers, at least 2."""
    load_timeout_s: float = 300.0
    build_timeout_s: float = 120.0
    step_timeout_s: float = 60.0
    command: tuple[str, ...] = ()
    """kind = "vllm": the launch command, as in ["vllm", "serve", "MODEL", "--port", "8001"]."""
    records: str = ""
    """kind = "vllm": a JSONL file to record served requests in; empty records none."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What the engine is asked. Lengths are in tokens."""

    trace: str = ""
    format: str = "auto"
    """auto, azure, mooncake, weka or strop."""
    limit: int = 0
    """Use the first so many requests of the trace; 0 means all."""
    max_isl: int = 0
    """Leave out requests with a longer input; 0 keeps all. Reported with every result."""
    max_osl: int = 0
    """Leave out requests with a longer output; 0 keeps all. Reported with every result."""
    max_clusters: int = 8
    concurrency: int = 1
    """Requests in flight when the trace cannot say; the batch size of a measured step."""
    text: str = ""
    """A UTF-8 text file to cut prompts from; empty means the text that strop ships."""
    tokens: TokenSource = TokenSource.REAL


@dataclass(frozen=True, slots=True)
class Search:
    """How long to look, and how."""

    budget_s: float = 300.0
    max_trials: int = 0
    """Stop after so many candidates; 0 leaves it to the budget."""
    seed: int = 0
    flag_search: bool = True
    """Also search the framework's own flags with the same budget, reported beside the result."""
    flag_budget_s: float = 0.0
    """0 means the same as budget_s."""

    def budget_for_s(self, search: str) -> float:
        """Return the seconds that a search, by its name, may spend."""
        return self.flag_budget_s or self.budget_s if search == "flags" else self.budget_s


@dataclass(frozen=True, slots=True)
class Policy:
    """What the judge demands."""

    numerics: str = "tolerance"
    """tolerance or bit_exact."""
    trust: bool = False
    """Run candidates even where an isolation layer is missing. Only for code that you vouch for."""
    allow_precision_change: bool = False
    """Opt in to int8 and bf16 weights and the like."""
    positions: int = 20_000
    """Teacher-forced positions of real text behind the final numerics verdict."""
    alpha: float = 0.05
    delta: float = 0.005
    """Least gain that counts: log ratio above which a candidate is faster."""
    worth: float = 0.01
    """A search gives a candidate up once its gain is proven to be smaller, as a log ratio."""
    max_cluster_loss: float = 0.02
    pairs_fast: int = 12
    pairs_slow: int = 24
    pairs_final: int = 60
    """Rounds of the fast and the slow tier, and pairs of the final judgement, that are always
    affordable; a round is a pair of every cluster. It ends earlier once decided."""
    patience_s: float = 60.0
    """Undecided, a race goes on for so long; a third of it on the fast tier, three times in the final
    judgement."""
    rounds_most: int = 5000
    """More rounds than these tell nothing new, however short they are."""
    repeats: int = 20
    """How often the final exam asks one question again to find races; a search, a quarter of it."""
    decode_steps: int = 16
    """Chained decode steps in one timed exchange."""


@dataclass(frozen=True, slots=True)
class Slo:
    """Objectives in ms; 0 means none was set."""

    ttft_ms: float = 0.0
    tpot_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Deployment:
    """Everything strop knows about one served model."""

    name: str
    engine: Engine
    traffic: Traffic = field(default_factory=Traffic)
    search: Search = field(default_factory=Search)
    policy: Policy = field(default_factory=Policy)
    slo: Slo = field(default_factory=Slo)


def state_dir() -> Path:
    """Return the folder of the journal: `$STROP_HOME`, or `.strop` in the working directory."""
    return Path(os.environ.get("STROP_HOME", ".strop"))


def load(path: Path, *, trust: bool = False) -> Deployment:
    """Read a deployment file; with `trust` the user vouches for the candidates all the same.

    Raises:
        StropError: the file is missing, is not TOML, or has an unknown or mistyped key.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StropError(f"{path}: no such deployment file; `strop init` writes one") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise StropError(f"{path}: not a readable TOML file: {error}") from None
    deployment = resolve(Deployment, table, str(path))
    if trust:
        policy = dataclasses.replace(deployment.policy, trust=True)
        deployment = dataclasses.replace(deployment, policy=policy)
    return _with_paths_from(deployment, path.parent)


def _with_paths_from(deployment: Deployment, folder: Path) -> Deployment:
    """Resolve relative files against the folder the TOML stands in."""
    traffic = deployment.traffic
    # An absolute path stays what it is; an empty one means none.
    trace = str(folder / traffic.trace) if traffic.trace else ""
    text = str(folder / traffic.text) if traffic.text else ""
    return dataclasses.replace(deployment, traffic=dataclasses.replace(traffic, trace=trace, text=text))


def template() -> str:
    """Return a deployment file with every key; those with a default are commented out."""
    lines = ['name = "my-model"', ""]
    for section, kind in typing.get_type_hints(Deployment).items():
        if not dataclasses.is_dataclass(kind):
            continue
        lines.append(f"[{section}]")
        for key in dataclasses.fields(kind):
            if key.default is dataclasses.MISSING:
                lines.append(f'{key.name} = "smollm2"  # a folder, package:factory, or a short name')
            else:
                lines.append(f"# {key.name} = {json.dumps(key.default)}")
        lines.append("")
    return "\n".join(lines)


def resolve(kind: type[T], table: Mapping[str, Any], where: str) -> T:
    """Build a config dataclass from a table, naming the first key that does not fit.

    Raises:
        StropError: an unknown key, a missing key, or a value of the wrong type.
    """
    hints = typing.get_type_hints(kind)
    for key in table:
        if key not in hints:
            close = difflib.get_close_matches(key, hints, 1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(hints)}"
            raise StropError(f"{where}: unknown key {key!r}{hint}")
    values = {key: _value(hints[key], value, f"{where}: {key}") for key, value in table.items()}
    try:
        return kind(**values)
    except TypeError:
        required = [
            f.name
            for f in dataclasses.fields(kind)  # type: ignore[arg-type]
            if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        ]
        missing = ", ".join(name for name in required if name not in values)
        raise StropError(f"{where}: missing key: {missing}") from None


def _value(hint: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, Mapping):
            raise StropError(f"{where}: a table is expected, got {value!r}")
        return resolve(hint, value, where)
    if hint is TokenSource:
        return _choice(hint, value, where)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint == tuple[str, ...]:
        if not isinstance(value, list | tuple) or not all(isinstance(word, str) for word in value):
            raise StropError(f"{where}: a list of strings is expected, got {value!r}")
        return tuple(value)
    if isinstance(hint, types.GenericAlias):
        hint = typing.get_origin(hint)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise StropError(f"{where}: {hint.__name__} is expected, got {value!r}")
    if hint in (int, float) and value < 0:
        raise StropError(f"{where}: may not be negative, got {value!r}")
    return value


def _choice(kind: type[TokenSource], value: Any, where: str) -> TokenSource:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(member.value for member in kind)
        raise StropError(f"{where}: one of {known} is expected, got {value!r}") from None
