"""The channel: typed, bounded, and never waiting for ever."""

from __future__ import annotations

import socket
import threading
import time

import numpy as np
import pytest

from strop.core import Reason, StropError
from strop.engine import wire
from strop.engine.contract import Batch


@pytest.fixture
def ends() -> tuple[wire.Channel, wire.Channel]:
    left, right = socket.socketpair()
    return wire.Channel(left), wire.Channel(right)


def test_a_batch_comes_through_unchanged(ends: tuple[wire.Channel, wire.Channel]) -> None:
    batch = Batch(((1, 2), (3,)), 4, ((5,), (6,)), (np.arange(6, dtype=np.float32).reshape(2, 3),))
    ends[0].send(wire.Prefill(wire.to_wire(batch)))
    request, fds = ends[1].request()
    got = wire.from_wire(request.batch)
    assert (got.prompts, got.forced, fds) == (batch.prompts, batch.forced, [])
    assert got.steps == 0, "how many steps follow a worker learns only with them"
    np.testing.assert_array_equal(got.inputs[0], batch.inputs[0])


def test_only_the_reply_to_what_was_asked_counts(ends: tuple[wire.Channel, wire.Channel]) -> None:
    judge, worker = ends
    worker.send(wire.Done(1))  # before anything was asked
    judge.ask(wire.Touched())
    with pytest.raises(wire.Closed, match="nobody asked for"):
        judge.reply(1.0)


def test_the_reply_repeats_the_number_of_its_request(ends: tuple[wire.Channel, wire.Channel]) -> None:
    judge, worker = ends
    for value in (1, 2):
        judge.ask(wire.Touched())
        worker.request()
        worker.send(wire.Done(value))
        assert judge.reply(1.0) == wire.Done(value)


def test_a_reply_larger_than_it_may_be_is_not_read(ends: tuple[wire.Channel, wire.Channel]) -> None:
    judge, worker = ends
    judge.ask(wire.Touched())
    worker.request()
    worker.send(wire.Done(text="x" * 2000))
    with pytest.raises(wire.Closed, match="1000 were the most"):
        judge.reply(1.0, most=1000)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", "bool", "complex64"])
def test_arrays_keep_dtype_shape_and_bits(dtype: str) -> None:
    for shape in ((), (0, 3), (2, 3)):
        array = np.ones(shape, dtype)
        back = wire.unpack(wire.pack(array))
        assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, shape, array.tobytes())


@pytest.mark.parametrize(
    "bad",
    [
        wire.WireArray("object", (1,), b"12345678"),
        wire.WireArray("float32", (2,), b"1234"),
        wire.WireArray("float32", (-1,), b""),
        wire.WireArray("float32", (1 << 40, 1 << 40), b""),
    ],
)
def test_an_array_that_lies_about_itself_is_refused(bad: wire.WireArray) -> None:
    with pytest.raises(StropError, match="the worker sent"):
        wire.unpack(bad)


def test_silence_is_a_deadline(ends: tuple[wire.Channel, wire.Channel]) -> None:
    started = time.monotonic()
    with pytest.raises(wire.Deadline):
        ends[0].reply(0.05)
    assert time.monotonic() - started < 1


def test_a_half_sent_reply_is_a_deadline_too(ends: tuple[wire.Channel, wire.Channel]) -> None:
    ends[1].sock.sendall(b"\0\0\0\0\0\0\0\x10half")
    with pytest.raises(wire.Deadline):
        ends[0].reply(0.05)


@pytest.mark.parametrize("junk", [b"\0" * 7 + b"\x03abc", b"\xff" * 20, b""])
def test_junk_and_silence_of_the_dead_are_closed(
    ends: tuple[wire.Channel, wire.Channel], junk: bytes
) -> None:
    ends[1].sock.sendall(junk)
    ends[1].close()
    with pytest.raises(wire.Closed):
        ends[0].reply(1)


def test_waiting_for_a_request_outlives_the_timeout_of_a_send(
    ends: tuple[wire.Channel, wire.Channel],
) -> None:
    ends[1].send(wire.Done(1), timeout_s=0.05)
    timer = threading.Timer(0.2, ends[0].send, (wire.Drop(),))
    timer.start()
    assert ends[1].request()[0] == wire.Drop()
    timer.join()


def test_a_fault_carries_its_reason(ends: tuple[wire.Channel, wire.Channel]) -> None:
    ends[1].send(wire.Failed("too big", Reason.OOM))
    assert ends[0].reply(1) == wire.Failed("too big", Reason.OOM)
