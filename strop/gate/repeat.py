"""Races, and answers kept by address: the same input must give the same bits again and again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from strop.core import Fault, Reason
from strop.engine.contract import Array, Role
from strop.gate.case import Case

__all__ = ["demand"]


def demand(case: Case) -> str:
    """Ask one short question many times: at either address, the second half under load.

    Raises:
        Fault: nondeterministic, unless the baseline does not repeat itself either.
    """
    number, count = case.exam.shortest, case.exam.repeats
    question, first = case.exam.questions[number], case.kept[number]
    with _load() as loaded:
        for turn in range(count):
            if turn == count // 2:
                loaded.set()
            again = case.engine.score(replace(question, slot=turn % 2)).outputs
            if not _same(first, again):
                loaded.clear()
                return _unless_the_baseline_varies_too(case, number, turn)
    return f"{count} times the same bits, half of them under load"


def _unless_the_baseline_varies_too(case: Case, number: int, turn: int) -> str:
    question = case.exam.questions[number]
    found = [case.engine.score(question, Role.BASELINE, case.tier).outputs for _ in range(turn + 2)]
    if all(_same(found[0], other) for other in found[1:]):
        what = f"the same input gave other bits the {turn + 2}. time; the baseline repeats itself"
        raise Fault(Reason.NONDETERMINISTIC, what)
    return "not judged: the baseline does not repeat its own bits"


@contextmanager
def _load() -> Iterator[threading.Event]:
    """Keep every core busy from the moment that the event is set until the end."""
    on, over = threading.Event(), threading.Event()

    def burn() -> None:
        square = np.ones((384, 384), np.float32)
        on.wait()
        while not over.is_set():
            square @ square  # releases the interpreter's lock

    thread = threading.Thread(target=burn, daemon=True)
    thread.start()
    try:
        yield on
    finally:
        over.set()
        on.set()
        thread.join()


def _same(first: list[Array], second: list[Array]) -> bool:
    return [a.tobytes() for a in first] == [b.tobytes() for b in second]
