"""How the Triton kernels beside this file are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton


def jit(function: Callable[..., Any]) -> Any:
    """Return the kernel; `triton.jit` with a type, also where triton's own are not installed.

    Kernels are cached by module and name. A candidate's package has a name of its own, and these
    files are copied into it, so a plain name never meets another candidate's.
    """
    return triton.jit(function)
