"""Outputs must look like the baseline's before anything is computed from them."""

from __future__ import annotations

import numpy as np

from strop.core import Fault, Reason
from strop.gate.case import Case

__all__ = ["demand"]


def demand(case: Case) -> str:
    """Demand the baseline's number of outputs, shapes and dtypes, and finite numbers.

    Raises:
        Fault: shape, dtype or nonfinite.
    """
    found, baseline = case.current.scored.outputs, case.current.baseline
    got, want = ([array.shape for array in arrays] for arrays in (found, baseline))
    if got != want:
        raise Fault(Reason.SHAPE, f"outputs of shape {got} where {want} was expected")
    for c, b in zip(found, baseline, strict=True):
        if c.dtype != b.dtype:
            raise Fault(Reason.DTYPE, f"outputs of dtype {c.dtype} where {b.dtype} was expected")
        bad = ~np.isfinite(c) & np.isfinite(b)
        if bad.any():
            raise Fault(Reason.NONFINITE, f"{int(bad.sum())} of {c.size} numbers are NaN or infinite")
    return "shapes and dtypes are the baseline's, all numbers finite"
