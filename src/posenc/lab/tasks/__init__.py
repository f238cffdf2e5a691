"""What can be compared: tasks, each a module of this folder with the name that ``--task`` takes.

Generated sequences share one module, which has a task for each of their names.
"""

from __future__ import annotations

import difflib
from dataclasses import asdict, fields
from importlib import import_module
from pathlib import Path
from typing import Any

from posenc.lab.foreign import check_fields, shown
from posenc.lab.tasks.task import Numbers, Task

SEQUENCES = ("passkey", "recall", "flipflop", "counting", "copy", "addition")
NAMES = ("text", "images", "extension", *SEQUENCES)


def task_named(name: str) -> Task[Any, Any, Any]:
    """A task by name; its module is loaded no earlier."""
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"--task {name}: no such task{hint} ({', '.join(NAMES[:-1])} or {NAMES[-1]})")
    if name in SEQUENCES:
        tasks: dict[str, Task[Any, Any, Any]] = import_module("posenc.lab.tasks.sequences").TASKS
        return tasks[name]
    task: Task[Any, Any, Any] = import_module(f"posenc.lab.tasks.{name}").TASK
    return task


def task_of(settings: Numbers) -> Task[Any, Any, Any]:
    """The task that a set of numbers belongs to."""
    return task_named(settings.task)


def to_record(settings: Numbers) -> dict[str, Any]:
    """Settings as plain data. Text was there before there were tasks, so its records do not name it."""
    named = {} if settings.task == "text" else {"task": settings.task}
    return {**named, **asdict(settings)}


def read_settings(record: object, path: Path) -> Numbers:
    """Settings from plain data of a file; a ValueError that names it where they are not what a task takes."""
    if not isinstance(record, dict) or not isinstance(record.get("task", "text"), str):
        raise ValueError(f"{path}: settings must be an object of numbers, got {shown(record)}")
    rest = dict(record)
    try:
        task = task_named(rest.pop("task", "text"))
        settings: Numbers = task.settings(rest)
        check_fields(settings, {field.name: field.default for field in fields(settings)}, path)
        task.check(settings)
    except (TypeError, KeyError) as error:
        raise ValueError(f"{path} was written by another version of posenc: its settings are others") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return settings
