"""The command ``posenc compare``. An option overrides every number of a profile."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from posenc.lab.cli_options import chosen, parse_value, with_numbers
from posenc.lab.compare import ExecutionConfig, compare
from posenc.lab.config import Machine, Profile, check_field, option
from posenc.lab.console import plain_console
from posenc.lab.execute import ranks
from posenc.lab.execute.executor import Executor, executor_class, executor_names
from posenc.lab.plugins import ImportAllowlist, allow_imports, is_module_name
from posenc.lab.run.planning import PANELS, RunRequest, default_folder
from posenc.lab.run.stopping import stoppable
from posenc.lab.schema import MOST_SEEDS
from posenc.lab.specs import plugin_names
from posenc.lab.tasks import task_named, task_names
from posenc.lab.tasks.task import Task

MOST_WORKERS = 2**12
_MACHINE = {field.name for field in dataclasses.fields(Machine)}  # numbers that belong to no task


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
        str | None,
        typer.Option(
            "--task",
            help=f"Task to learn: {', '.join(task_names())}, or my_module:MyTask. Default: {', '.join(PANELS)}, one "
            "after the other; with --profile, --data or a number of the profile: text alone.",
            show_default=False,
        ),
    ] = None,
    chosen_profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            help="quick, standard or full (for a GPU); with text also llama-125m (for eight). Default: quick.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="Text: python, prose, headers, documents, a file, a folder, hf:NAME or hf:NAME:CONFIG, or "
            "my_module:my_corpus; by default python; for a checkpoint several, with commas. Images: a folder with a "
            "folder of pictures for each class; by default scikit-learn's digits.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the run. Default: posenc-compare/default; of a task posenc-compare/<task>-<profile>, of "
            "text posenc-compare/<profile>.",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Training runs of each encoding, each with its own seed.", show_default=False)
    ] = None,
    classes_from: Annotated[
        Path | None,
        typer.Option(help="Folder with your own classes; searched before Python's path.", show_default=False),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Jobs at a time. Default: one per core, or per GPU.", show_default=False)
    ] = None,
    cost: Annotated[
        bool, typer.Option(help="With text, measure time and memory by length at the end, on this machine.")
    ] = True,
    executor_name: Annotated[
        str,
        typer.Option(
            "--executor", "--runner",
            help=f"Where jobs run: {', '.join(executor_names())}, or my_module:MyExecutor; under torchrun, all ranks "
            "train each job together.",
        ),
    ] = "local",
    track: Annotated[
        list[str] | None,
        typer.Option(
            help="Also log every job to wandb or tensorboard; may be given twice. Needs the extra \\[track].",
            show_default=False,
        ),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE: any number, also of a task or executor of your own.")
    ] = None,
    numbers: dict[str, Any],
) -> None:  # fmt: skip
    """Train one small model per encoding at a short length, and measure all of them at longer lengths.

    By default in three panels: recall and copy, tasks that small models learn in minutes, then a language model of
    text. With --task images: train on a small grid of tokens, and measure shifted and larger images. With a generated
    task, such as --task passkey: train on short sequences, and test long ones. With --task extension: extend the
    context of a trained model. With --task checkpoint: extend the context of an existing transformers model, without
    training.

    Stop it any way you like: the same command continues where it stopped, and ends with the same numbers.
    """
    _check("--workers", workers, MOST_WORKERS)
    _check("--seeds", seeds, MOST_SEEDS)
    names = (task_name or "", data or "", executor_name)
    typed = [*(encodings or ()), *(name for name in names if is_module_name(name))]
    with allow_imports(allowlist_of(typed, classes_from)), stoppable(context.obj):
        executor, settings = _executor(executor_name, numbers, set_ or ())
        of_one_task = task_name or chosen_profile or data or settings or set(numbers) - _MACHINE
        panels = (task_name or "text",) if of_one_task else PANELS
        trackers, requests = tuple(dict.fromkeys(track or ())), list[RunRequest]()
        for name in panels:
            task = task_named(name)
            profile = profile_of(task, chosen_profile or "quick", encodings or (), seeds if of_one_task else seeds or 1)
            config = chosen(numbers, settings, profile.config)
            profile = dataclasses.replace(profile, config=config)
            folder = default_folder(name if of_one_task else "", profile.name) if out is None else out
            source = task.source if data is None else data
            place = folder if of_one_task else folder / name
            requests.append(RunRequest(profile, source, place, context.obj, executor.elsewhere, trackers))
        execution = ExecutionConfig(executor, workers, cost and executor.name == "local")
        compare(requests, folder, execution, plain_console(quiet=not ranks.is_first()))


def profile_of(task: Task, name: str, encodings: Sequence[str], seeds: int | None) -> Profile:
    """A task's profile with the encodings and seeds of the command line."""
    profile = task.profile(name)
    return dataclasses.replace(
        profile, encodings=tuple(encodings) or profile.encodings, seeds=profile.seeds if seeds is None else seeds
    )


def allowlist_of(typed: Sequence[str], folder: Path | None) -> ImportAllowlist:
    """What a command may import: the user's own classes that were typed, from a folder."""
    return ImportAllowlist(frozenset(plugin_names(typed)), folder or Path())


def _executor(name: str, numbers: dict[str, Any], settings: Sequence[str]) -> tuple[Executor, list[str]]:
    """The executor, whose options are taken out of ``numbers``; and the words of --set that are not its options."""
    cls = executor_class("torchrun" if name == "local" and ranks.count() > 1 else name)
    if ranks.count() > 1 and cls.name != "torchrun":
        raise ValueError(f"--executor {name} and torchrun exclude each other: choose one")
    fields = {field.name: field for field in _fields(cls)}
    options = {key: numbers.pop(key) for key in [*numbers] if key in fields}
    for other in _built_in():
        for field in _fields(other):
            if field.name in numbers:
                raise ValueError(f"{option(field.name)}: an option of --executor {other.name}, not of {cls.name}")
    words = list[str]()
    for word in settings:
        key, _, text = word.partition("=")
        key = key.strip().replace("-", "_")
        if key in fields:
            options[key] = parse_value(type(fields[key].default), key, text.strip())
        else:
            words.append(word)
    for key, value in options.items():
        check_field(fields[key], value)
    return cls(**options), words


def _fields(cls: type[Executor]) -> list[dataclasses.Field[Any]]:
    """The options of an executor: fields declared by `posenc.lab.config.number`."""
    return [field for field in dataclasses.fields(cls) if "text" in field.metadata]


def _built_in() -> list[type[Executor]]:
    return [executor_class(name) for name in executor_names()]


def _check(name: str, value: int | None, most: int) -> None:
    if value is not None and not 1 <= value <= most:
        raise ValueError(f"{name} {value}: a number from 1 to {most:,} is needed")


compare_command = with_numbers(_compare, [*(task_named(name).options for name in task_names()), *_built_in()])
