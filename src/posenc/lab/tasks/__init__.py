"""What can be compared: a file of this folder for each task, found by the name that ``--task`` takes.

A file whose class derived from `Task` has the file's name as its ``name`` is a task; nothing else lists it. The other
files of this folder hold what tasks share.
"""

from __future__ import annotations

import pkgutil
from difflib import get_close_matches
from importlib import import_module

from posenc.lab.plugins import is_plugin, load_class
from posenc.lab.tasks.task import Task


def task_names() -> tuple[str, ...]:
    """The built-in tasks."""
    return tuple(name for name in sorted(module.name for module in pkgutil.iter_modules(__path__)) if _built_in(name))


def task_named(name: str) -> Task:
    """A task by name, or one of a user's, ``my_module:MyTask``, which must be allowed; see `posenc.lab.plugins`.

    Raises:
        ValueError: for an unknown name, and for a user's class as `load_class`.
    """
    if is_plugin(name):
        own = load_class(name, (Task,))
        own.name = name
        task: Task = own()
        return task
    cls = _built_in(name) if any(module.name == name for module in pkgutil.iter_modules(__path__)) else None
    if cls is None:
        close = get_close_matches(name, task_names(), n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise ValueError(
            f"--task {name}: no such task{hint} ({', '.join(task_names())}, or a class of your own as "
            "my_module:MyClass)"
        )
    return cls()


def _built_in(name: str) -> type[Task] | None:
    for cls in vars(import_module(f"{__name__}.{name}")).values():
        if isinstance(cls, type) and issubclass(cls, Task) and getattr(cls, "name", None) == name:
            return cls
    return None
