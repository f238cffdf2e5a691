"""What can be compared: the tasks, by the name that ``--task`` takes."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module

from posenc.lab.plugins import is_plugin, load_class
from posenc.lab.tasks.task import Task

TASKS = {  # module and class, imported when the task is asked for
    "addition": "addition.Addition", "copy": "puzzles.Copy", "counting": "puzzles.Counting",
    "flipflop": "puzzles.FlipFlop", "images": "images.Images", "passkey": "puzzles.Passkey", "recall": "puzzles.Recall",
    "text": "text.Text",
}  # fmt: skip


def task_named(name: str) -> Task:
    """A task by name, or one of a user's, ``my_module:MyTask``, which must be allowed; see `posenc.lab.plugins`.

    Raises:
        ValueError: for an unknown name, and for a user's class as `load_class`.
    """
    task: Task
    if is_plugin(name):
        own = load_class(name, (Task,))
        own.name = name
        task = own()
        return task
    if name not in TASKS:
        close = get_close_matches(name, TASKS, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise ValueError(
            f"--task {name}: no such task{hint} ({', '.join(TASKS)}, or a class of your own as my_module:MyClass)"
        )
    module, _, cls = TASKS[name].partition(".")
    task = getattr(import_module(f"{__name__}.{module}"), cls)()
    return task
