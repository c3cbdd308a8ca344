"""The user's own command for vLLM: what strop must know of it, and what strop adds to it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import NoReturn

from strop.core import StropError

__all__ = ["Served", "parse"]

_EXTENSION = "--worker-extension-cls"
_SHORT = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-asc": "--api-server-count",
    "-n": "--nnodes",
    "-r": "--node-rank",
}
_ONLY = {
    "--data-parallel-size": "1",
    "--api-server-count": "1",
    "--nnodes": "1",
    "--node-rank": "0",
}
"""Flags that are supported with one value only: one server, one engine, one machine."""
_VALUES = {
    *_ONLY,
    _EXTENSION,
    "--model",
    "--served-model-name",
    "--host",
    "--port",
    "--uds",
    "--root-path",
    "--api-key",
    "--tensor-parallel-size",
    "--pipeline-parallel-size",
    "--ssl-certfile",
}
_REFUSED = {
    "--headless": "a headless node serves no requests; run strop on the node that does",
    "--grpc": "the gRPC server takes no middleware; serve HTTP",
    "--config": "strop reads no file of flags; give them on the command line",
}
_KNOWN = _VALUES | _REFUSED.keys()
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
_PYTHON = re.compile(r"python(\d+(\.\d+)?)?")
_GLUED = re.compile(r"(-[nr])(\d+)")
_NO = {"", "0"}


@dataclass(frozen=True, slots=True)
class Served:
    """A launch command of vLLM, and what of it strop needs to know."""

    command: tuple[str, ...]
    """Starts with a program: assignments before it, if any, are given to `env`."""
    model: str
    host: str
    """As given to vLLM; empty for all interfaces."""
    port: int
    served_name: str
    """The name by which requests ask for the model."""
    api_key: str = field(repr=False)
    """The first of the keys; empty when the server wants none."""
    tensor_parallel: int
    pipeline_parallel: int
    worker_extension: str
    """The user's own extension class; empty when there is none."""
    uds: str
    """Path of a Unix socket that takes the place of host and port; empty when there is none."""
    tls: bool
    root_path: str

    @property
    def url(self) -> str:
        """Where a client on this machine reaches the server, without a slash at the end."""
        host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)
        if ":" in host and not host.startswith("["):
            host = f"[{host}]"
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{self.root_path.rstrip('/')}"

    def launch(self, extension: str, middleware: str) -> list[str]:
        """Return the command with strop's worker extension and middleware, both import paths.

        vLLM takes one worker extension. A user's own is taken out of the command, and ours stands
        in its place; `environment` names the user's in STROP_USER_EXTENSION, and our class
        inherits from it. Middleware adds up: ours comes last, so it stands outside the user's.
        """
        kept: list[str] = []
        words = iter(self.command)
        for word in words:
            name, value = _flag(word)
            if name != _EXTENSION:
                kept.append(word)
            elif value is None:
                next(words)
        return [*kept, _EXTENSION, extension, "--middleware", middleware]

    def environment(self, token: str, records: str) -> dict[str, str]:
        """Return the variables to add for the launched server.

        Args:
            token: The secret of strop's own routes.
            records: Path of the JSONL file of requests; empty records nothing.
        """
        return {
            "STROP_TOKEN": token,
            "STROP_RECORDS": records,
            # Also when empty: one from outside would name an extension of another command.
            "STROP_USER_EXTENSION": self.worker_extension,
        }


def parse(command: Sequence[str]) -> Served:
    """Read a launch command such as `vllm serve MODEL --port 8001`.

    `vllm` may have a path, or be run as `python -m vllm.entrypoints.cli.main`; the older
    `python -m vllm.entrypoints.openai.api_server --model MODEL` and assignments in front
    (`A=B`, `env A=B`) are read too. Flags are read as vLLM reads them: `--flag value`,
    `--flag=value`, underscores, unambiguous beginnings; the last of several counts.

    Raises:
        StropError: no such command, no launch of vLLM, no model, a value that is missing or
            wrong, or a deployment that is not supported yet.
    """
    words = list(command)
    assigned, start = _assignments(words)
    program = words[start:]
    if not program:
        raise StropError("no launch command; give one, such as `vllm serve MODEL`")
    arguments, positional = _arguments(program)
    environment = {**os.environ, **assigned}
    _found(program[0], environment)
    _one_python_server(environment)
    named, rest = _model(arguments) if positional else ("", arguments)
    values = _values(rest)
    model = values.get("--model", named)
    if not model:
        raise StropError("the command names no model; give it as in `vllm serve MODEL`")
    return Served(
        command=("env", *(f"{k}={v}" for k, v in assigned.items()), *program) if assigned else tuple(program),
        model=model,
        host=_text(values, "--host"),
        port=_number(values, "--port", 8000, 65535),
        served_name=_text(values, "--served-model-name") or model,
        api_key=_text(values, "--api-key") or environment.get("VLLM_API_KEY", ""),
        tensor_parallel=_number(values, "--tensor-parallel-size", 1),
        pipeline_parallel=_number(values, "--pipeline-parallel-size", 1),
        worker_extension=_text(values, _EXTENSION),
        uds=_text(values, "--uds"),
        tls="--ssl-certfile" in values,
        root_path=_text(values, "--root-path"),
    )


def _assignments(words: list[str]) -> tuple[dict[str, str], int]:
    """Return the variables set in front of the program, and where the program stands."""
    start = 1 if words and PurePath(words[0]).name == "env" else 0
    assigned = {}
    while start < len(words) and _ASSIGNMENT.match(words[start]):
        name, _, value = words[start].partition("=")
        assigned[name] = value
        start += 1
    if start < len(words) and words[start].startswith("-"):
        raise StropError(f"{words[start]}: options of env are not supported; give assignments only, as A=B")
    return assigned, start


def _arguments(program: list[str]) -> tuple[list[str], bool]:
    """Return vLLM's own arguments, and whether the first of them may be the model."""
    name = PurePath(program[0]).name
    rest = program[1:]
    if _PYTHON.fullmatch(name):
        name, rest = _module(rest)
    if name == "vllm.entrypoints.openai.api_server":
        return rest, False
    if name not in ("vllm", "vllm.entrypoints.cli.main"):
        _not_a_launch(program)
    if rest[:1] != ["serve"]:
        _not_a_launch(program)
    return rest[1:], True


def _module(words: list[str]) -> tuple[str, list[str]]:
    """Return the module or script that Python is told to run, and its arguments."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-m":
        at += 2 if words[at] in ("-X", "-W") else 1
    if words[at : at + 1] == ["-m"]:
        return "".join(words[at + 1 : at + 2]), words[at + 2 :]
    return PurePath("".join(words[at : at + 1])).name, words[at + 1 :]


def _not_a_launch(program: list[str]) -> NoReturn:
    shown = " ".join(program[:3])
    raise StropError(f"{shown!r} does not launch vLLM's server; give a command such as `vllm serve MODEL`")


def _found(program: str, environment: Mapping[str, str]) -> None:
    if not shutil.which(program, path=environment.get("PATH")):
        raise StropError(
            f"{program}: no such command; activate the environment that has vLLM, or give its full path"
        )


def _one_python_server(environment: Mapping[str, str]) -> None:
    if environment.get("VLLM_USE_RUST_FRONTEND", "") not in _NO:
        raise StropError("VLLM_USE_RUST_FRONTEND: the Rust frontend takes no middleware; unset it")


def _model(arguments: list[str]) -> tuple[str, list[str]]:
    """Split off the model, which vLLM reads only where it stands right after `serve`."""
    if arguments and not arguments[0].startswith("-"):
        return arguments[0], arguments[1:]
    return "", arguments


def _values(arguments: list[str]) -> dict[str, str]:
    """Return the last value of each flag that strop reads.

    Raises:
        StropError: a value is missing, or a flag stands for what is not supported yet.
    """
    values: dict[str, str] = {}
    words = iter(arguments)
    for word in words:
        name, value = _flag(word)
        _refuse(name)
        if name not in _VALUES:
            continue
        if value is None:
            value = next(words, "")
        if not value or value.startswith("--"):
            raise StropError(f"{name}: a value is missing; give one, as in `{name} VALUE`")
        if value != _ONLY.get(name, value):
            raise StropError(
                f"{name} {value}: only {_ONLY[name]} is supported yet (one server, one engine, one machine)"
            )
        values[name] = value
    return values


def _refuse(name: str) -> None:
    if name in _REFUSED:
        raise StropError(f"{name} is not supported: {_REFUSED[name]}")
    if name.startswith(("--data-parallel", "-dp")) and name != "--data-parallel-size":
        raise StropError(f"{name}: data-parallel serving is not supported yet; take the flag away")


def _flag(word: str) -> tuple[str, str | None]:
    """Return a flag's full name, and its value where the same word holds it; ("", None) for no flag."""
    if not word.startswith("-"):
        return "", None
    if glued := _GLUED.fullmatch(word):
        return _SHORT[glued[1]], glued[2]
    name, sign, value = word.partition("=")
    name = _SHORT.get(name, name)
    if name.startswith("--"):
        name = "--" + name[2:].replace("_", "-")
        if name not in _KNOWN and len(name) > 2:
            meant = [known for known in _KNOWN if known.startswith(name)]
            # vLLM itself refuses a beginning that also fits a flag unknown here.
            name = meant[0] if len(meant) == 1 else name
    return name, value if sign else None


def _text(values: Mapping[str, str], name: str) -> str:
    return values.get(name, "")


def _number(values: Mapping[str, str], name: str, default: int, most: int = 1_000_000) -> int:
    text = values.get(name, str(default))
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= most:
        raise StropError(f"{name} {text}: a whole number from 1 to {most} is expected")
    return int(text)
