"""Typed messages between the judge, the owner and its workers, and the channel they travel on.

A worker runs untrusted code, so its bytes are parsed as msgpack into closed types and never
unpickled, and an array is accepted only when its size follows from its dtype and shape. Each
request carries a random number that its reply must repeat: nothing can be answered in advance.
"""

from __future__ import annotations

import math
import secrets
import socket
import struct
import time
from typing import Any

import msgspec
import numpy as np

from strop.core import Reason, StropError, Tier
from strop.engine.contract import Array, Batch

__all__ = ["Channel", "Closed", "Deadline", "WireArray", "WireBatch", "pack", "unpack"]

_HEADER = struct.Struct(">QQ")
"""Bytes of the body, and the number that says which request this is, or answers."""
_MAX_FRAME = 1 << 30
_DTYPES = frozenset(
    [
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    ]
)


class Closed(Exception):
    """The other end is gone."""


class Deadline(Exception):
    """The other end did not answer in time."""


class WireArray(msgspec.Struct, frozen=True):
    """An array as bytes. dtype is a numpy name; bfloat16 travels as float32, which holds it."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


class WireBatch(msgspec.Struct, frozen=True):
    """A `contract.Batch` on the wire; how many steps follow a worker learns only with them."""

    prompts: tuple[tuple[int, ...], ...] = ()
    forced: tuple[tuple[int, ...], ...] = ()
    inputs: tuple[WireArray, ...] = ()
    slot: int = 0


class Load(msgspec.Struct, frozen=True, tag=True):
    """Build a candidate for a tier."""

    version: str
    tier: Tier
    files: dict[str, str]
    precision: bool
    """Whether the deployment opted in to a change of precision."""


class Activate(msgspec.Struct, frozen=True, tag=True):
    """Make a version the one that runs."""

    version: str
    tier: Tier


class Prefill(msgspec.Struct, frozen=True, tag=True):
    """Run the prefill and choose the first token; or call a module once. Timed.

    The inputs come with it: whoever knew them before could compute before.
    """

    batch: WireBatch


class Decode(msgspec.Struct, frozen=True, tag=True):
    """Run chained greedy decode steps. Timed."""

    steps: int
    first: tuple[int, ...] = ()
    """Token to feed first, one a request; empty goes on with the prefill's own."""


class Score(msgspec.Struct, frozen=True, tag=True):
    """Return outputs for judging."""

    batch: WireBatch
    whole: bool = False
    """One teacher-forced forward over prompt and forced tokens instead of prefill and decode."""
    poison: bool = False
    """Fill what is allocated meanwhile with garbage."""


class Reread(msgspec.Struct, frozen=True, tag=True):
    """Return the last outputs and inputs again, to find late writes and mutated inputs."""


class Drop(msgspec.Struct, frozen=True, tag=True):
    """Make the baseline active and forget every candidate."""


class Touched(msgspec.Struct, frozen=True, tag=True):
    """Say how many bytes of its private copy of the weights this worker has written to."""


class Describe(msgspec.Struct, frozen=True, tag=True):
    """Server: say what is held, as a `Report`. The first request of a session."""

    fast_layers: int = 0
    """K of the fast tier; 0 leaves it to the engine."""


class Keep(msgspec.Struct, frozen=True, tag=True):
    """Server: let the active version serve when this session ends, instead of the baseline."""


class Digest(msgspec.Struct, frozen=True, tag=True):
    """Server: say what the weights' bytes add up to, as the text of a `Done`."""


class Sample(msgspec.Struct, frozen=True, tag=True):
    """Owner: draw a module's inputs."""

    seed: int


class Fork(msgspec.Struct, frozen=True, tag=True):
    """Owner: fork a worker that serves the descriptor sent along."""

    role: str
    private: bool = False
    """Map the weights copy-on-write: tells a write to the weights from any other crash."""


class Reap(msgspec.Struct, frozen=True, tag=True):
    """Owner: kill a worker if it still runs, and say how it ended."""

    pid: int


class Done(msgspec.Struct, frozen=True, tag=True):
    """Success, with one number where the verb has one (bytes, pid, wait status)."""

    value: int = 0
    text: str = ""


class Arrays(msgspec.Struct, frozen=True, tag=True):
    """Success, with output bytes."""

    arrays: tuple[WireArray, ...]


class Report(msgspec.Struct, frozen=True, tag=True):
    """Owner: a `contract.Description` as JSON."""

    description: bytes


class Progress(msgspec.Struct, frozen=True, tag=True):
    """Owner: a line to show while a long start goes on; any number may precede a reply."""

    text: str


class Failed(msgspec.Struct, frozen=True, tag=True):
    """A candidate's fault, or (without a reason) a mistake of the user's."""

    detail: str
    reason: Reason | None = None


Request = (
    Load
    | Activate
    | Prefill
    | Decode
    | Score
    | Reread
    | Drop
    | Touched
    | Describe
    | Digest
    | Keep
    | Sample
    | Fork
    | Reap
)
Reply = Done | Arrays | Report | Progress | Failed

_encoder = msgspec.msgpack.Encoder()
_requests = msgspec.msgpack.Decoder(Request)
_replies = msgspec.msgpack.Decoder(Reply)


def pack(array: Array) -> WireArray:
    """Turn an array into bytes."""
    contiguous = np.ascontiguousarray(array)
    return WireArray(contiguous.dtype.name, array.shape, contiguous.tobytes())


def unpack(wire: WireArray) -> Array:
    """Turn bytes into an array.

    Raises:
        StropError: the dtype is not a plain number, or the size does not follow from the shape.
    """
    if wire.dtype not in _DTYPES or any(side < 0 for side in wire.shape):
        raise StropError(f"the worker sent an array of dtype {wire.dtype!r}, {wire.shape}")
    dtype = np.dtype(wire.dtype)
    if math.prod(wire.shape) * dtype.itemsize != len(wire.data):
        raise StropError(f"the worker sent {len(wire.data)} bytes for {wire.dtype}{wire.shape}")
    return np.frombuffer(wire.data, dtype=dtype).reshape(wire.shape)


def to_wire(batch: Batch) -> WireBatch:
    """Prepare a batch for the wire."""
    return WireBatch(batch.prompts, batch.forced, tuple(map(pack, batch.inputs)), batch.slot)


def from_wire(batch: WireBatch) -> Batch:
    """Read a batch off the wire."""
    return Batch(batch.prompts, 0, batch.forced, tuple(map(unpack, batch.inputs)), batch.slot)


class Channel:
    """Length-prefixed msgpack frames over a stream socket; every wait has a deadline."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.number = 0
        """Of the request that is being answered; 0 for what comes before any."""

    def ask(self, message: Any, *, fds: tuple[int, ...] = ()) -> None:
        """Send a request under a fresh number, as the judge. Raises what `send` raises."""
        self.number = secrets.randbits(64)
        self.send(message, fds=fds)

    def send(self, message: Any, *, fds: tuple[int, ...] = (), timeout_s: float = 60.0) -> None:
        """Send one message, with descriptors riding along.

        Raises:
            Closed: the other end is gone.
            Deadline: it did not take the bytes in time.
        """
        body = _encoder.encode(message)
        self.sock.settimeout(timeout_s)
        try:
            header = _HEADER.pack(len(body), self.number)
            if fds:
                socket.send_fds(self.sock, [header], list(fds))
            else:
                self.sock.sendall(header)
            self.sock.sendall(body)
        except TimeoutError:
            raise Deadline from None
        except OSError as error:
            raise Closed(str(error)) from None

    def request(self) -> tuple[Any, list[int]]:
        """Wait for a request, as owner or worker; return it with its descriptors."""
        self.sock.settimeout(None)  # a send before may have left its own
        header, fds, _, _ = socket.recv_fds(self.sock, _HEADER.size, 4)
        header += self._read(_HEADER.size - len(header), None) if header else b""
        if not header:
            raise Closed("end of stream")
        size, self.number = _HEADER.unpack(header)
        return _requests.decode(self._read(size, None)), fds

    def reply(self, timeout_s: float, most: int = _MAX_FRAME) -> Any:
        """Wait for a reply of at most `most` bytes, as the judge.

        Raises:
            Closed: the other end died, or sent what is no reply to what was asked last.
            Deadline: no whole reply within `timeout_s` seconds.
        """
        until = time.monotonic() + timeout_s
        size, number = _HEADER.unpack(self._read(_HEADER.size, until))
        if number != self.number:
            raise Closed("a reply that nobody asked for")
        if size > most:
            raise Closed(f"a reply of {size} bytes where {most} were the most")
        body = self._read(size, until)
        try:
            return _replies.decode(body)
        except msgspec.DecodeError as error:
            raise Closed(f"a reply that is none: {error}") from None

    def _read(self, size: int, until: float | None) -> bytes:
        buffer = bytearray(size)
        view = memoryview(buffer)
        while view:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise Deadline
            self.sock.settimeout(left)
            try:
                count = self.sock.recv_into(view)
            except TimeoutError:
                raise Deadline from None
            except OSError as error:
                raise Closed(str(error)) from None
            if count == 0:
                raise Closed("end of stream")
            view = view[count:]
        return bytes(buffer)

    def close(self) -> None:
        """Close this end."""
        self.sock.close()
