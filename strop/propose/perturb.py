"""Perturbations of a baseline: legal reorderings of its own arithmetic, to calibrate the judge with."""

from __future__ import annotations

from strop.core import Candidate
from strop.propose.compose import read

__all__ = ["perturbations"]

_FORWARD = '''"""{what}."""

from . import regroup


def build(model, ctx):
    return regroup.build(model, ctx, parts={parts})
'''
_KINDS = (
    ("Each sum in two halves, the second first", 2, 0),
    ("Each sum in seven parts, the last first", 7, 0),
    ("As it is, on one thread", 1, 1),
)


def perturbations() -> list[Candidate]:
    """Return candidates for any torch model, all of them as right as its own forward pass."""
    return [
        Candidate(
            files={
                "forward.py": _FORWARD.format(what=what, parts=parts),
                "regroup.py": read("regroup.py"),
                "manifest.toml": f'author = "strop"\nthreads = {threads}\n',
            },
            author="strop",
        )
        for what, parts, threads in _KINDS
    ]
