"""The command ``posenc cost``."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from posenc.lab.console import plain_console
from posenc.lab.cost.costs import BASE, HEADS, LEGEND, write_costs
from posenc.lab.cost.measure import LENGTHS, SECONDS, measure_with_progress
from posenc.lab.cost.passes import Conditions
from posenc.lab.files import naming
from posenc.lab.plugins import ImportAllowlist, allow_imports
from posenc.lab.run.machine import device_of
from posenc.lab.run.stopping import StoppedByUserError
from posenc.lab.specs import plugin_names
from posenc.lab.tasks import task_named


def cost_command(
    context: typer.Context,
    encodings: Annotated[
        list[str] | None,
        typer.Argument(help="Encodings as compare names them, like rope or rope+alibi. Default: the profile's."),
    ] = None,
    chosen_profile: Annotated[str, typer.Option("--profile", help="quick, standard or full.")] = "quick",
    lengths: Annotated[
        str | None, typer.Option(help="Tokens that one layer reads, like 512,2048.", show_default=False)
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="For the timed rounds of each cell.", show_default=False)
    ] = None,
    dim: Annotated[int | None, typer.Option(help="Width of the model.", show_default=False)] = None,
    layers: Annotated[int | None, typer.Option(help="Layers of the whole model.", show_default=False)] = None,
    heads: Annotated[int | None, typer.Option(help="Attention heads.", show_default=False)] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps.", show_default=False)] = None,
    precision: Annotated[str | None, typer.Option(help="float32 or bfloat16.", show_default=False)] = None,
    threads: Annotated[int | None, typer.Option(help="Processor threads.", show_default=False)] = None,
    classes_from: Annotated[
        Path | None, typer.Option(help="Folder that classes of your own lie in.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder. Default: posenc-cost/<profile>.", show_default=False)
    ] = None,
) -> None:
    """Measure what encodings cost: time and memory of a layer and a model, parameters, the path of attention.

    All encodings run side by side, and each is compared with the same model without any (nope).
    """
    chosen = task_named("text").profile(chosen_profile)
    numbers = {
        "dim": dim, "layers": layers, "heads": heads, "device": device, "precision": precision, "threads": threads,
    }  # fmt: skip
    config = chosen.config.replaced({name: value for name, value in numbers.items() if value is not None})
    config.check()
    config = config.replaced({"device": device_of(config.machine.device)})
    tokens = LENGTHS[chosen.name] if lengths is None else _tokens(lengths)
    conditions = Conditions(config, tokens, SECONDS[chosen.name] if seconds is None else seconds)
    folder = Path("posenc-cost") / chosen.name if out is None else out
    words = shlex.split(context.obj or "posenc cost")
    command = shlex.join(words if "--device" in words else [*words, "--device", conditions.device])
    with allow_imports(ImportAllowlist(frozenset(plugin_names(encodings or ())), classes_from or Path())):
        _measure(list(encodings or chosen.encodings), conditions, folder, command)


def _measure(specs: list[str], conditions: Conditions, folder: Path, command: str) -> None:
    console = plain_console()
    with naming(folder):  # what cannot be written is said before the measuring
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    if BASE not in specs:
        console.print(f"{BASE} is measured too: every other is compared with it.", style="dim")
    try:
        costs = measure_with_progress(
            specs, conditions.config, conditions.lengths, conditions.seconds, console, command=command
        )
        written = write_costs(folder, costs)
    except KeyboardInterrupt:
        raise StoppedByUserError("nothing is written, and results of an earlier run are as they were") from None
    longest = conditions.lengths[-1]
    console.print(
        f"\nOne layer at {longest:,} tokens, and training of the whole model; times as multiples of those of {BASE}."
    )
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for number, head in enumerate(HEADS):
        table.add_column(head, justify="right" if number else "left", overflow="fold", no_wrap=number > 0)
    for line in costs.overview():
        table.add_row(*line)
    console.print(table)
    for sentence in (LEGEND, *costs.remarks()):
        console.print(sentence, style="dim")
    console.print(f"\nWritten to {folder}: {', '.join(path.name for path in written)}")


def _tokens(text: str) -> tuple[int, ...]:
    """``"512,2048"`` as tokens."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--lengths {text!r}: tokens separated by commas are needed, like 512,2048") from None
