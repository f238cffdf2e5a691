"""What can be compared: a file of this folder for each task, with the name that ``--task`` takes."""

from __future__ import annotations

import difflib
from importlib import import_module

from posenc.lab.plugins import is_plugin, load_class
from posenc.lab.tasks.task import Task

CLASSES = {
    "text": "Text", "extension": "Extension", "checkpoint": "Checkpoint", "images": "Images", "passkey": "Passkey",
    "recall": "Recall", "flipflop": "FlipFlop", "counting": "Counting", "copy": "Copy", "addition": "Addition",
}  # fmt: skip
NAMES = tuple(CLASSES)


def task_named(name: str) -> Task:
    """A task by name, or one of somebody's own, ``my_module:MyTask``, which must be permitted; see `own`."""
    if is_plugin(name):
        made = load_class(name, Task)()  # type: ignore[type-abstract]
        made.__class__.name = name
        return made
    if name not in CLASSES:
        near = difflib.get_close_matches(name, NAMES, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"--task {name}: no such task{hint} ({', '.join(NAMES[:-1])} or {NAMES[-1]})")
    found: Task = getattr(import_module(f"posenc.lab.tasks.{name}"), CLASSES[name])()
    return found
