"""The command line: one verb a stage."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import Annotated

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
    Path | None,
    typer.Option("--home", help="Folder of the journal. [default: $STROP_HOME or .strop]"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Trust = Annotated[
    bool, typer.Option("--trust", help="Run code even where an isolation layer is missing; see `doctor`.")
]
Name = Annotated[str, typer.Argument(help="Name of the deployment.")]
File = Annotated[Path, typer.Argument(help="Deployment file (TOML); `strop init` writes one.")]
Trace = Annotated[Path, typer.Argument(help="Azure CSV, Mooncake, Weka or strop JSONL; also .gz.")]


def _version(wanted: bool) -> None:
    if wanted:
        from strop import __version__

        print(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it and leave.")
    ] = False,
) -> None:
    pass


@app.command()
def optimize(
    file: File,
    home: Home = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML report here.")] = None,
    budget: Annotated[float | None, typer.Option(help="Seconds per search.")] = None,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Find, verify and install a faster forward pass. Ctrl-C stops; the same command goes on."""
    from strop import commands

    commands.optimize(config.load(file, trust=trust), home, report, budget, as_json)


@app.command()
def verify(
    candidate: Annotated[str, typer.Argument(help="A folder, a forward.py, or the id of a judged one.")],
    file: File,
    home: Home = None,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out the final judgement.")] = False,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Judge one candidate, every check in sight. Exit status: 0 passed, 1 refused, 3 inconclusive."""
    from strop import commands

    raise typer.Exit(commands.verify(candidate, config.load(file, trust=trust), home, quick, as_json))


@app.command()
def observe(
    trace: Trace,
    format: Annotated[str, typer.Option(help="auto, azure, mooncake, weka or strop.")] = "auto",
    limit: Annotated[int, typer.Option(help="Read the first so many requests; 0 reads all.")] = 0,
    max_isl: Annotated[int, typer.Option(help="Leave out longer inputs; 0 keeps all.")] = 0,
    max_osl: Annotated[int, typer.Option(help="Leave out longer outputs; 0 keeps all.")] = 0,
    max_clusters: Annotated[int, typer.Option(help="BIC picks from 1 to so many.")] = 8,
    draw: Annotated[Path | None, typer.Option(help="Draw the clusters to this PNG or SVG.")] = None,
    as_json: Json = False,
) -> None:
    """Show what a trace asks of an engine: lengths, concurrency, clusters."""
    from strop import commands

    commands.observe(
        trace,
        config.Traffic(str(trace), format, limit, max_isl, max_osl, max_clusters),
        draw,
        as_json,
    )


@app.command()
def status(home: Home = None, as_json: Json = False) -> None:
    """Show each deployment: what is live, since when, what was tried."""
    from strop import commands

    commands.status(home, as_json)


@app.command()
def history(name: Name, home: Home = None, as_json: Json = False) -> None:
    """Show what happened to a deployment, oldest first."""
    from strop import commands

    commands.history(name, home, as_json)


@app.command()
def show(
    candidate: Annotated[str, typer.Argument(help="Id of a candidate or version; a prefix will do.")],
    home: Home = None,
    source: Annotated[bool, typer.Option("--source", help="Print its files too.")] = False,
    as_json: Json = False,
) -> None:
    """Show a candidate: its verdict, every check and what it measured, its source."""
    from strop import commands

    commands.show(candidate, home, source, as_json)


@app.command()
def rollback(name: Name, home: Home = None, as_json: Json = False) -> None:
    """Put back what was live before; with nothing before it, the model's own forward."""
    from strop import commands

    commands.rollback(name, home, as_json)


@app.command()
def report(
    name: Name,
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("report.html"),
    home: Home = None,
) -> None:
    """Write the HTML report of a deployment's newest run."""
    from strop import commands

    commands.report(name, out, home)


@app.command()
def doctor(home: Home = None, as_json: Json = False) -> None:
    """Say what this machine can do: isolation layers, engines, GPU, journal."""
    from strop import commands

    commands.doctor(home, as_json)


@app.command()
def init(
    file: Annotated[Path, typer.Argument(help="The file to write.")] = Path("strop.toml"),
) -> None:
    """Write a deployment file with every key, its default and its meaning."""
    from strop import commands

    commands.init(file)


def main() -> int:
    """Run the command line; every expected mistake is one line and a non-zero exit."""
    try:
        return int(app(standalone_mode=False) or 0)  # the status that a command left with
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
