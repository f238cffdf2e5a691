"""The commands of ``posenc``: compare, report, tune, cost, list, info, explain, export."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

import posenc
from posenc.catalogue import info, list_encodings
from posenc.hf.config import read_rope
from posenc.hf.inspect import as_json, as_text
from posenc.hf.scalings import check_convention
from posenc.lab.compare import FailedJobsError
from posenc.lab.compare_command import compare_command
from posenc.lab.cost.command import cost_command
from posenc.lab.export.command import export_command
from posenc.lab.report.command import report_command
from posenc.lab.runners import distributed
from posenc.lab.stopping import StoppedByUserError
from posenc.lab.tune.command import tune_command

BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130  # exit codes

app = typer.Typer(
    name="posenc",
    help="Positional encodings for transformers: what there is, and what survives past the trained length.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"posenc {posenc.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    pass


app.command("compare")(compare_command)
app.command("report")(report_command)
app.command("tune")(tune_command)
app.command("cost")(cost_command)


@app.command("list")
def list_command() -> None:
    """All encodings: where they act, and what they are."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("name", "acts on", "encoding", "parameters"):
        table.add_column(head)
    for name in list_encodings():
        entry = info(name)
        table.add_row(entry.name, entry.place, entry.title, entry.parameters)
    console = Console(highlight=False, markup=False)
    console.print(table)
    console.print("posenc info NAME tells more; posenc compare measures them.", style="dim")


@app.command("info")
def info_command(name: Annotated[str, typer.Argument(help="A name from `posenc list`.")]) -> None:
    """One encoding: formula, source, parameters, what it costs."""
    entry = info(name)
    console = Console(highlight=False, markup=False)
    console.print()
    console.print(entry.title, style="bold")
    console.print()
    grid = Table.grid(padding=(0, 2))
    facts = (
        ("formula", entry.formula),
        ("acts on", entry.place),
        ("source", entry.source),
        ("parameters", entry.parameters),
        ("costs", entry.cost),
        ("past the trained length", entry.past_training),
    )
    for fact, value in facts:
        grid.add_row(Text(fact, style="dim"), value)
    console.print(grid)


@app.command("explain")
def explain_command(
    path: Annotated[Path, typer.Argument(help="A config.json, or the folder of a checkpoint that has one.")],
    convention: Annotated[
        str, typer.Option(help="Whose reading of YaRN's keys: transformers, deepseek or vllm.")
    ] = "transformers",
    head_dim: Annotated[
        int | None, typer.Option(help="Channels of a head, if the file does not say.", show_default=False)
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(help="A key of the block to leave unread.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the facts as JSON.")] = False,
) -> None:
    """What a Hugging Face configuration means: base, wavelengths, scaling, lengths, and what to beware of."""
    config = read_rope(path, head_dim=head_dim, convention=check_convention(convention), ignore=ignore or ())
    typer.echo(as_json(config) if json else as_text(config))


app.command("export")(export_command)


def run(arguments: list[str]) -> int:
    """Run a command line; returns the exit code. Whatever is wrong with the input is one line on stderr."""
    command = typer.main.get_command(app)
    try:
        typed = shlex.join(["posenc", *arguments])
        outcome = command.main(args=arguments, prog_name="posenc", standalone_mode=False, obj=typed)
    except (ValueError, OSError) as error:
        return _complain(str(error), BAD_INPUT)
    except FailedJobsError as error:
        return _complain(str(error), FAILED)
    except StoppedByUserError as error:
        return _complain(str(error), INTERRUPTED, kind="stopped")
    except Exception as error:
        # The parser's own errors: typer brings its own copy of click, so they are known by what they offer.
        text = getattr(error, "format_message", None)
        if text is None:
            raise
        return _complain(text() or "no command is given; posenc --help lists them", BAD_INPUT)
    return outcome if isinstance(outcome, int) else 0


def _complain(text: str, code: int, kind: str = "error") -> int:
    if distributed.is_first():
        line = text if code == FAILED else " ".join(text.split())
        sys.stderr.write(f"{kind}: {line}\n")
    return code
