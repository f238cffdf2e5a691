"""The command ``posenc tune``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from posenc.lab.cli_options import chosen, with_numbers
from posenc.lab.console import plain_console
from posenc.lab.plugins import ImportAllowlist, allow_imports, is_plugin
from posenc.lab.run.optimizer import FILE, describe_factors
from posenc.lab.run.planning import RunRequest, default_folder
from posenc.lab.run.stopping import stoppable
from posenc.lab.specs import plugin_names
from posenc.lab.tasks import task_named, task_names
from posenc.lab.tune import tuner

MOST_WORKERS = 2**12


def _tune(
    *,
    context: typer.Context,
    encodings: Annotated[
        list[str] | None,
        typer.Argument(help="Encodings as compare names them. Default: the profile's.", show_default=False),
    ] = None,
    task_name: Annotated[str, typer.Option("--task", help="As in compare; not images.")] = "text",
    chosen_profile: Annotated[str, typer.Option("--profile", help="quick, standard or full.")] = "quick",
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

    Give the numbers that compare will be given. All encodings are searched on one grid: 5 common rates and, where an
    encoding has parameters, 3 rates of their own with each; two seeds; an edge that is best is moved. That is 10 or 30
    trainings of each encoding, or more. What compare scores is never looked at. Stop it any way you like: the same
    command goes on.
    """
    if workers is not None and not 1 <= workers <= MOST_WORKERS:
        raise ValueError(f"--workers {workers}: a number from 1 to {MOST_WORKERS:,} is needed")
    typed = plugin_names([*(encodings or ()), *filter(is_plugin, (task_name,))])
    with allow_imports(ImportAllowlist(frozenset(typed), classes_from or Path())), stoppable(context.obj):
        task = task_named(task_name)
        profile_defaults = task.profile(chosen_profile)
        config = chosen(numbers, set_ or (), profile_defaults.config)
        profile = dataclasses.replace(
            profile_defaults, encodings=tuple(encodings or ()) or profile_defaults.encodings, config=config
        )
        folder = default_folder(task_name, profile.name) if out is None else out
        request = RunRequest(profile, task.source if data is None else data, folder, context.obj)
        console = plain_console()
        for spec, conclusion in tuner.tune(request, workers, console).items():
            limit = ", at the limit of the search" if conclusion.at_limit else ""
            best = f"{describe_factors(conclusion.tuned)}: loss {conclusion.loss:.4f}"
            console.print(f"{spec}: {best}, the best of {conclusion.points} rates{limit}")
    console.print(f"Written to {folder / FILE}; posenc compare reads it there.")


tune_command = with_numbers(_tune, [task_named(name).options for name in task_names()])
