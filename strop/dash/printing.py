"""How a command prints: text and tables without markup, and plain data for `--json`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from strop.dash import words

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

__all__ = ["plain", "say", "table"]


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> RenderableType:
    """Return a table without lines; cells are text, never markup or control characters."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, show_header=any(columns), padding=(0, 2, 0, 0))
    for name in columns or [""] * max((len(row) for row in rows), default=0):
        made.add_column(Text(name, "dim"), overflow="fold")
    for row in rows:
        made.add_row(*(Text(words.clean(cell)) for cell in row))
    return made


def say(console: Console | None, what: RenderableType) -> None:
    """Print a table, or text literally; on standard output unless a console is given."""
    from rich.console import Console
    from rich.text import Text

    console = console or Console(highlight=False)
    if isinstance(what, str):
        console.print(Text(words.clean(what)), soft_wrap=True)
        return
    if not console.is_terminal:
        # A pipe has no width of its own: 80 columns would fold every id.
        console.width = max(console.width, 160)
    console.print(what)


def plain(record: Any) -> Any:
    """Return plain data; what JSON has no number for becomes null."""
    import msgspec

    return _finite(msgspec.to_builtins(record, str_keys=True))


def _finite(data: Any) -> Any:
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    return [_finite(value) for value in data] if isinstance(data, list | tuple) else data
