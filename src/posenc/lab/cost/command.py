"""The command ``posenc cost``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from posenc.lab.console import plain_console
from posenc.lab.cost.conditions import LENGTHS, SECONDS, conditions_of, parse_lengths
from posenc.lab.cost.measured import measured
from posenc.lab.cost.results import BASE, Costs
from posenc.lab.cost.store import write_cost
from posenc.lab.cost.tables import LEGEND, missing, overview, unsteady
from posenc.lab.own import permitted
from posenc.lab.plan import make_folder, settle
from posenc.lab.repeating import repeatable
from posenc.lab.specs import check_specs, is_control, normal, permission_for
from posenc.lab.stopping import StoppedByUserError
from posenc.lab.tasks.numbers import override
from posenc.lab.tasks.task import Profile
from posenc.lab.text.profiles import Settings, profile


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
    precision: Annotated[
        str | None, typer.Option(help="auto, float32 or bfloat16; auto measures both.", show_default=False)
    ] = None,
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
    numbers = {
        "dim": dim, "layers": layers, "heads": heads, "device": device, "precision": precision, "threads": threads,
    }  # fmt: skip
    chosen = override(profile(chosen_profile), list(encodings or ()), numbers)
    for spec in encodings or ():
        if is_control(normal(spec)):
            raise ValueError(f"{spec}: a control is not a model of its own; name the encoding without it")
    tokens = LENGTHS[chosen.name] if lengths is None else parse_lengths(lengths)
    budget = SECONDS[chosen.name] if seconds is None else seconds
    folder = Path("posenc-cost") / chosen.name if out is None else out
    with permitted(permission_for(encodings or (), classes_from or Path())):
        _measure(chosen, tokens, budget, folder, context.obj or "posenc cost")


def _measure(chosen: Profile[Settings], tokens: tuple[int, ...], budget: float, folder: Path, command: str) -> None:
    specs = check_specs([spec for spec in chosen.encodings if not is_control(normal(spec))], chosen.settings.shape)
    console = plain_console()
    settings = settle(chosen.settings, {}, console, elsewhere=False)
    conditions_of(settings, tokens, budget)
    make_folder(folder)
    if BASE not in specs:
        console.print(f"{BASE} is measured too: every other is compared with it.", style="dim")
    try:
        costs = measured(
            specs, settings, tokens, budget, console, command=repeatable(command, chosen.settings, settings)
        )
        written = write_cost(folder, costs)
    except KeyboardInterrupt:
        raise StoppedByUserError("nothing is written, and results of an earlier run are as they were") from None
    _show(costs, console)
    console.print(f"\nWritten to {folder}: {', '.join(path.name for path in written)}")


def _show(costs: Costs, console: Console) -> None:
    found = overview(costs)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for number, head in enumerate(found.heads):
        table.add_column(head, justify="right" if number else "left", overflow="fold", no_wrap=number > 0)
    for line in found.lines:
        table.add_row(*line)
    console.print(f"\n{found.title}.")
    console.print(table)
    console.print(LEGEND, style="dim")
    for sentence in (*unsteady(costs), *missing(costs)):
        console.print(sentence, style="dim")
