"""What can be compared: a file of this folder for each task, found by the name that ``--task`` takes.

A file whose class derived from `Task` has the file's name as its ``name`` is a task; nothing else lists it. The other
files of this folder hold what tasks share; the name of a file that needs a package beyond the extra ``lab`` begins
with an underscore.
"""

from __future__ import annotations

import sys

from posenc.lab.plugins import builtin_names, by_name, is_plugin
from posenc.lab.tasks.task import Task


def task_names() -> tuple[str, ...]:
    """The built-in tasks."""
    return builtin_names(sys.modules[__name__], Task)


def task_named(name: str) -> Task:
    """A task by name, or one of a user's, ``my_module:MyTask``, which must be allowed; see `posenc.lab.plugins`."""
    cls = by_name(sys.modules[__name__], Task, name, "--task")  # type: ignore[type-abstract]
    if is_plugin(name):
        cls.name = name
    return cls()
