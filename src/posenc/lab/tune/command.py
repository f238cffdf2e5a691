"""The command ``posenc tune``. Its options are read without Optuna, which the extra ``tune`` brings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posenc.lab.console import plain_console
from posenc.lab.extras import load
from posenc.lab.own import permitted
from posenc.lab.plan import Plan, default_folder
from posenc.lab.rates import FILE, in_words
from posenc.lab.specs import permission_for
from posenc.lab.stopping import stoppable
from posenc.lab.tasks import task_named
from posenc.lab.tasks.numbers import check_count, override


def tune_command(
    context: typer.Context,
    encodings: Annotated[
        list[str] | None,
        typer.Argument(help="Encodings as compare names them. Default: the profile's.", show_default=False),
    ] = None,
    task_name: Annotated[str, typer.Option("--task", help="As in compare; not images.")] = "text",
    chosen_profile: Annotated[str, typer.Option("--profile", help="quick, standard or full.")] = "quick",
    trials: Annotated[int, typer.Option(help="Trainings of each encoding; the first has the default rates.")] = 8,
    data: Annotated[str | None, typer.Option(help="As in compare.", show_default=False)] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run, by default the one of compare.", show_default=False)
    ] = None,
    classes_from: Annotated[
        Path | None, typer.Option(help="Folder that classes of your own lie in.", show_default=False)
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Jobs at a time. Default: one per core.", show_default=False)
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Training steps of a trial.", show_default=False)] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps.", show_default=False)] = None,
    precision: Annotated[str | None, typer.Option(help="auto, float32 or bfloat16.", show_default=False)] = None,
    threads: Annotated[int | None, typer.Option(help="Processor threads of each job.", show_default=False)] = None,
) -> None:
    """Find learning rates for each encoding, and write them where compare reads them: tuned.json in the run's folder.

    A default is given up only where another rate lowers the training loss by more than 1 %. The windows that compare
    scores are never looked at. Stop it any way you like: the same command goes on where it stopped.
    """
    check_count("trials", trials, 1)
    if workers is not None:
        check_count("workers", workers, 1)
    tune = load("posenc.lab.tune.tuner", "tune", packages=("optuna",), extra="tune", user="tune")
    task = task_named(task_name)
    numbers = {"steps": steps, "device": device, "precision": precision, "threads": threads}
    chosen = override(task.profile(chosen_profile), list(encodings or ()), numbers)
    folder = default_folder(task_name, chosen.name) if out is None else out
    plan = Plan(chosen, task.source if data is None else data, folder, workers, command=context.obj)
    console = plain_console()
    with permitted(permission_for(encodings or (), classes_from or Path())), stoppable(plan.command):
        found = tune(plan, trials, console)
    for spec, f in found.items():
        gained = f"{in_words(f.tuned)}: loss {f.default:.4f} → {f.best:.4f}" if f.tuned else "the default stays"
        console.print(f"{spec}: {gained}")
    console.print(f"Written to {folder / FILE}; posenc compare reads it there.")
