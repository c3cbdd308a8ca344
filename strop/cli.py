"""The command line: one verb a stage."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from strop import config
from strop.core import StropError

__all__ = ["app", "main"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A continual compiler for inference: rewrite, measure, judge, ship, roll back.",
)

Home = Annotated[
    Path | None, typer.Option("--home", help="Folder of the journal. [default: $STROP_HOME or .strop]")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Name = Annotated[str, typer.Argument(help="Name of the deployment.")]
File = Annotated[Path, typer.Argument(help="Deployment file (TOML); `strop init` writes one.")]
Trace = Annotated[Path, typer.Argument(help="Azure CSV, Mooncake, Weka or strop JSONL; also .gz.")]


def main() -> int:
    """Run the command line; every expected mistake is one line and a non-zero exit."""
    try:
        app(standalone_mode=False)
        return 0
    except StropError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return _fail("stopped; nothing is lost, the same command goes on from here", 130)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return _fail(f"the disk is full ({error.filename or 'journal'}); free some space and go on")
    except typer.Exit as leave:
        return int(leave.exit_code)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        return _fail(error.format_message(), 2)


def _fail(line: str, code: int = 1) -> int:
    print(f"strop: {line}", file=sys.stderr)
    return code
