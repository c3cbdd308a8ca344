"""One JSON line for each request the server answered, in strop's trace format with more keys.

    {"arrival_s": 1760000000.25, "isl": 812, "osl": 3, "cached_prefix": 256, "duration_s": 0.061,
     "ttft_ms": 41.2, "itl_ms": [9.9, 9.9], "status": "ok", "version": ["baseline"], "held_ms": 0.0}

`arrival_s` is Unix time. `ttft_ms` and `duration_s` count from the arrival, so both contain
`held_ms`, the wait before a closed door. Tokens that came in one chunk are 0 ms apart. A request
that does not stream shows no single tokens: its `itl_ms` is empty, and its `ttft_ms` comes from
the engine's own clock, or is null. With several sequences `isl` is the prompt once, `osl` the sum.
`isl` and `osl` are 0 when a request ended before its first output.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, Literal

__all__ = ["Observation", "Recorder", "Status"]

Status = Literal["ok", "aborted", "error"]

_FINISH: dict[str | None, Status] = {"abort": "aborted", "error": "error"}


class Observation:
    """What one request did, from its arrival on.

    `kind` is the name of the request's `RequestOutputKind`: DELTA outputs carry new tokens only,
    CUMULATIVE ones all so far, and FINAL_ONLY is one output at the end. Monotonic clocks are the
    same in all processes of a machine, so the engine's time stamps can be set against ours.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.arrival_s = time.time()
        self.start_s = time.monotonic()
        self.isl = 0
        self.cached = 0
        self.held_s = 0.0
        self.versions: list[str] = []
        self.finish: Status | None = None
        self._seen = False
        self._first_s: float | None = None
        self._tokens: dict[int, int] = {}
        self._last_s: dict[int, float] = {}
        self._gaps_s: list[float] = []

    def admitted(self, held_s: float, version: str) -> None:
        """Note that the request passed the door after `held_s` seconds, to be made by `version`."""
        self.held_s = held_s
        self.versions.append(version)

    def see(self, output: Any) -> None:
        """Note one of vLLM's `RequestOutput`."""
        now_s = time.monotonic()
        if not self._seen:
            self._seen = True
            self.isl = len(output.prompt_token_ids or ())
        self.cached = output.num_cached_tokens or self.cached
        for sequence in output.outputs:
            self._count(sequence.index, len(sequence.token_ids), now_s)
        if output.finished:
            self.finish = _worst(output.outputs)
            if self.kind == "FINAL_ONLY":
                self._first_s = self._engine_first_s(output.metrics, now_s)

    def row(self, status: Status) -> dict[str, Any]:
        """Return the line of a request that ended just now."""
        first_s = self._first_s
        duration_s = time.monotonic() - self.start_s
        # A request that never passed the door spent its whole life before it.
        held_s = self.held_s if self.versions else duration_s
        return {
            "arrival_s": round(self.arrival_s, 6),
            "isl": self.isl,
            "osl": sum(self._tokens.values()),
            "cached_prefix": min(self.cached, self.isl),
            "duration_s": round(duration_s, 6),
            "ttft_ms": None if first_s is None else _ms(first_s - self.start_s),
            "itl_ms": [_ms(gap_s) for gap_s in self._gaps_s],
            "status": status,
            "version": self.versions,
            "held_ms": _ms(held_s),
        }

    def _count(self, index: int, tokens: int, now_s: float) -> None:
        before = self._tokens.get(index, 0)
        new = tokens if self.kind == "DELTA" else tokens - before
        if new <= 0:
            return
        self._tokens[index] = before + new
        if self.kind == "FINAL_ONLY":
            return
        if before:
            self._gaps_s.append(now_s - self._last_s[index])
        self._gaps_s.extend([0.0] * (new - 1))
        self._last_s[index] = now_s
        if self._first_s is None:
            self._first_s = now_s

    def _engine_first_s(self, metrics: Any, now_s: float) -> float | None:
        # Without statistics there is no time stamp, and 0 stands for one that was never set.
        first_s = getattr(metrics, "first_token_ts", 0.0)
        return first_s if self.start_s <= first_s <= now_s else None


class Recorder:
    """Appends lines to a file; the first failure ends the recording, never a request.

    An empty path records nothing. One process writes a file: a line that a full disk cut short
    is taken back, which would hurt a second writer.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1
        if path:
            try:
                self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            except OSError as error:
                self._stop(error)

    @property
    def recording(self) -> bool:
        """Whether lines are still written."""
        return self._fd >= 0

    def write(self, row: Mapping[str, Any]) -> None:
        """Append one line, with one write."""
        if self._fd < 0:
            return
        line = json.dumps(row, separators=(",", ":")).encode() + b"\n"
        try:
            written = os.write(self._fd, line)
            if written < len(line):
                # A torn line would make the whole file unreadable as a trace.
                os.ftruncate(self._fd, os.lseek(self._fd, 0, os.SEEK_END) - written)
                raise OSError("no room for a whole line")
        except OSError as error:
            self._stop(error)

    def close(self) -> None:
        """Write no more lines."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _stop(self, error: OSError) -> None:
        self.close()
        print(f"strop: {self.path}: requests are no longer recorded: {error}", file=sys.stderr, flush=True)


def _worst(sequences: Any) -> Status:
    found = {_FINISH.get(sequence.finish_reason, "ok") for sequence in sequences}
    if "error" in found:
        return "error"
    return "aborted" if "aborted" in found else "ok"


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)
