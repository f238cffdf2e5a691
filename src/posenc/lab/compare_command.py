"""The command ``posenc compare``. An option overrides every number of a profile."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from posenc.lab.cli_options import chosen, with_numbers
from posenc.lab.compare import ExecutionConfig, compare
from posenc.lab.config import Options, Profile
from posenc.lab.console import plain_console
from posenc.lab.execute import ranks
from posenc.lab.plugins import ImportAllowlist, allow_imports, is_module_name
from posenc.lab.run.planning import RunRequest, default_folder
from posenc.lab.run.stopping import stoppable
from posenc.lab.schema import MOST_SEEDS
from posenc.lab.specs import plugin_names
from posenc.lab.tasks import NAMES, task_named
from posenc.lab.tasks.task import Task

CLUSTERS = ("slurm", "local", "debug")  # of `posenc.lab.execute.slurm`
MOST_WORKERS, MOST_MINUTES = 2**12, 10**6


def _compare(
    *,
    context: typer.Context,
    encodings: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names from `posenc list`, a class of your own as my_module:MyClass, mixes like rope+alibi. Default: "
            "the profile's.",
            show_default=False,
        ),
    ] = None,
    task_name: Annotated[
        str, typer.Option("--task", help=f"What is learnt: {', '.join(NAMES)}, or my_module:MyTask.")
    ] = "text",
    chosen_profile: Annotated[str, typer.Option("--profile", help="quick, standard or full (for a GPU).")] = "quick",
    data: Annotated[
        str | None,
        typer.Option(
            help="Text: python, prose, headers, a file, a folder, hf:NAME or hf:NAME:CONFIG, or my_module:my_corpus; "
            "by default python; for a checkpoint several, with commas. Images: a folder with a folder of pictures for "
            "each class; by default scikit-learn's digits.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the run. Default: posenc-compare/<profile>, or <task>-<profile>.", show_default=False
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="How many seeds each encoding is trained with.", show_default=False)
    ] = None,
    classes_from: Annotated[
        Path | None,
        typer.Option(help="Folder that classes of your own lie in; before Python's own path.", show_default=False),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Jobs at a time. Default: one per core, or per GPU.", show_default=False)
    ] = None,
    cost: Annotated[
        bool, typer.Option(help="With text, measure time and memory by length at the end, on this machine.")
    ] = True,
    runner: Annotated[
        str,
        typer.Option(
            help="local, slurm, ray, or my_module:my_executor; under torchrun all ranks train each job together."
        ),
    ] = "local",
    slurm_cluster: Annotated[
        str, typer.Option(help="slurm; local and debug try the same without a cluster.")
    ] = "slurm",
    slurm_partition: Annotated[str | None, typer.Option(help="Partition of the cluster.", show_default=False)] = None,
    slurm_timeout: Annotated[int, typer.Option(help="Minutes until a job is queued again.")] = 240,
    ray_address: Annotated[
        str, typer.Option(help="Of a Ray cluster: auto, HOST:PORT, or local for one of this machine alone.")
    ] = "auto",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE: any number, also of a task of your own.")
    ] = None,
    numbers: dict[str, Any],
) -> None:
    """Train one small model per encoding at a short length, and measure all of them on longer text.

    With --task images: train on a small grid of tokens, and measure moved and larger ones. With a generated task, such
    as --task passkey: train on short sequences, and ask long ones. With --task extension: stretch a trained model.
    With --task checkpoint: stretch a model of transformers that is given, and train nothing.

    Stop it any way you like: the same command goes on where it stopped, and ends with the same numbers.
    """
    _check("--workers", workers, MOST_WORKERS)
    _check("--seeds", seeds, MOST_SEEDS)
    _check("--slurm-timeout", slurm_timeout, MOST_MINUTES)
    if slurm_cluster not in CLUSTERS:
        raise ValueError(f"--slurm-cluster {slurm_cluster}: {', '.join(CLUSTERS)} is needed")
    typed = [*(encodings or ()), *(name for name in (task_name, data or "", runner) if is_module_name(name))]
    with allow_imports(allowlist_of(typed, classes_from)), stoppable(context.obj):
        task = task_named(task_name)
        profile = profile_of(task, chosen_profile, encodings or (), seeds)
        profile = dataclasses.replace(profile, config=chosen(numbers, set_ or (), profile.config))
        folder = default_folder(task_name, profile.name) if out is None else out
        slurm = {"cluster": slurm_cluster, "partition": slurm_partition, "timeout": slurm_timeout}
        execution = ExecutionConfig(
            runner, workers, slurm, ray_address, cost and task_name == "text" and runner == "local"
        )
        request = RunRequest(profile, task.source if data is None else data, folder, context.obj, execution.elsewhere)
        compare(request, execution, plain_console(quiet=not ranks.is_first()))


def profile_of(task: Task, name: str, encodings: Sequence[str], seeds: int | None) -> Profile:
    """A task's profile with the encodings and seeds that were asked for."""
    found = task.profile(name)
    return dataclasses.replace(
        found, encodings=tuple(encodings) or found.encodings, seeds=found.seeds if seeds is None else seeds
    )


def allowlist_of(typed: Sequence[str], folder: Path | None) -> ImportAllowlist:
    """What a command may import: the classes of one's own that were typed, from a folder."""
    return ImportAllowlist(frozenset(plugin_names(typed)), folder or Path())


def _check(name: str, value: int | None, most: int) -> None:
    if value is not None and not 1 <= value <= most:
        raise ValueError(f"{name} {value}: a number from 1 to {most:,} is needed")


def _all_options() -> list[type[Options]]:
    return [task_named(name).options for name in NAMES]


compare_command = with_numbers(_compare, _all_options())
