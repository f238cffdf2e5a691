"""The command ``posenc tune``. Its options are read without Optuna, which the extra ``tune`` brings."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from posenc.lab.cli_options import chosen, with_numbers
from posenc.lab.console import plain_console
from posenc.lab.plugins import ImportAllowlist, allow_imports, is_plugin, load_optional
from posenc.lab.run.optimizer import FILE, describe_factors
from posenc.lab.run.planning import RunRequest, default_folder
from posenc.lab.run.stopping import stoppable
from posenc.lab.specs import plugin_names
from posenc.lab.tasks import task_named, task_names

MOST_TRIALS, MOST_WORKERS = 10**4, 2**12


def _tune(
    *,
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
    set_: Annotated[list[str] | None, typer.Option("--set", help="NAME=VALUE, as in compare.")] = None,
    cost: Annotated[
        bool, typer.Option("--cost/--no-cost", help="Accepted as compare's; trials measure no cost.")
    ] = False,
    numbers: dict[str, Any],
) -> None:
    """Find learning rates for each encoding, and write them where compare reads them: tuned.json in the run's folder.

    Give the numbers that compare will be given. A default is given up only where another rate lowers the training loss
    by more than 1 %. What compare scores is never looked at. Stop it any way you like: the same command goes on.
    """
    for name, value, most in (("--trials", trials, MOST_TRIALS), ("--workers", workers, MOST_WORKERS)):
        if value is not None and not 1 <= value <= most:
            raise ValueError(f"{name} {value}: a number from 1 to {most:,} is needed")
    tuner = load_optional("posenc.lab.tune.tuner", packages=("optuna",), extra="tune", user="tune")
    typed = plugin_names([*(encodings or ()), *filter(is_plugin, (task_name,))])
    with allow_imports(ImportAllowlist(frozenset(typed), classes_from or Path())), stoppable(context.obj):
        task = task_named(task_name)
        found = task.profile(chosen_profile)
        config = chosen(numbers, set_ or (), found.config)
        profile = dataclasses.replace(found, encodings=tuple(encodings or ()) or found.encodings, config=config)
        folder = default_folder(task_name, profile.name) if out is None else out
        request = RunRequest(profile, task.source if data is None else data, folder, context.obj)
        console = plain_console()
        for spec, f in tuner.tune(request, trials, workers, console).items():
            better = f"{describe_factors(f.tuned)}: loss {f.default:.4f} → {f.best:.4f}"
            console.print(f"{spec}: {better if f.tuned else 'the default stays'}")
    console.print(f"Written to {folder / FILE}; posenc compare reads it there.")


tune_command = with_numbers(_tune, [task_named(name).options for name in task_names()])
