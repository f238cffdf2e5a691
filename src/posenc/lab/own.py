"""Classes of one's own, ``module:Class``: imported by the command that they are typed in, and by no other.

They may be encodings, tasks, corpora, executors, or charts of a report.

The folder of a run may come from anybody, and a name in it is data: reading, reporting or exporting a run imports
nothing that it names. A command that trains permits the names that were typed, from the folder that the user names (by
default the current one), and so do the workers that it starts. Whatever else asks for such a class gets a ValueError.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from posenc.encoding import HOOK_POINTS, Encoding


class Permission(NamedTuple):
    """Which classes may be imported, and from where."""

    names: frozenset[str] = frozenset()
    folder: Path = Path()  # looked in before Python's own path

    def of(self, names: Iterable[str]) -> Permission:
        """The part of it that these names need."""
        return Permission(self.names & set(names), self.folder)


T = TypeVar("T")
_NOTHING = Permission()
_permitted = [_NOTHING]


@contextmanager
def permitted(permission: Permission) -> Iterator[None]:
    """A part of a program in which these classes are imported when they are asked for."""
    before, folder = list(sys.path), str(permission.folder.resolve())
    if permission.names:
        if not permission.folder.is_dir():
            raise ValueError(f"--classes-from {permission.folder}: no such folder")
        sys.path.insert(0, folder)
    _permitted.append(permission)
    try:
        yield
    finally:
        _permitted.pop()
        sys.path[:] = before


def permission() -> Permission:
    """What this part of the program may import."""
    return _permitted[-1]


def is_own(name: str) -> bool:
    """Whether a name is that of somebody's class, not of the catalogue."""
    return ":" in name


def is_module_name(name: str) -> bool:
    """Whether a word is ``module:name``, and no path, no ``hf:NAME`` and no HOST:PORT."""
    module, _, attribute = name.partition(":")
    return module != "hf" and attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))


def imported(name: str, kind: type[T], *, what: str = "") -> type[T]:
    """The class that a name stands for, one derived from ``kind``; a ValueError where it is not permitted or none.

    Args:
        name: ``module:Class``.
        kind: what it must be derived from.
        what: what it is to be, in words; default the name of ``kind``.
    """
    found = _attribute(name)
    if not isinstance(found, type) or not issubclass(found, kind):
        raise ValueError(f"{name}: there is no class of this name that is {what or f'a {kind.__name__}'}")
    return found


def called(name: str) -> Callable[..., Any]:
    """The function that a name ``module:function`` stands for; a ValueError where it is not permitted or none."""
    found = _attribute(name)
    if not callable(found):
        raise ValueError(f"{name}: there is no function of this name")
    function: Callable[..., Any] = found
    return function


def own_class(name: str) -> type[Encoding]:
    """The encoding; a ValueError where it is not permitted, not there, or no encoding."""
    places = ", ".join(place.__name__ for place in HOOK_POINTS.values())
    found = imported(name, Encoding, what=f"one of {places}")
    if not issubclass(found, tuple(HOOK_POINTS.values())):
        raise ValueError(f"{name}: there is no class of this name that is one of {places}")
    return found


def _attribute(name: str) -> Any:
    module, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), attribute)):
        raise ValueError(f"{name}: an own class is named as it is imported, like my_module:MyClass")
    if name not in permission().names:
        raise ValueError(
            f"{name}: a class of somebody's own. Reading a run imports nothing that the run names; posenc compare "
            "imports it, where it is named on the command line (--classes-from says where it lies)"
        )
    folder = permission().folder.resolve()
    try:
        loaded = import_module(module)
    except (Exception, SystemExit) as error:
        raise ValueError(
            f"{name}: {module} cannot be imported from {folder} or Python's path: {type(error).__name__}: {error}"
        ) from error
    if not hasattr(loaded, attribute):
        classes = [name for name, value in vars(loaded).items() if isinstance(value, type)]
        close = get_close_matches(attribute, classes, 1, 0.5)
        hint = f": did you mean {close[0]}?" if close else ""
        raise ValueError(f"{name}: {module}.py has no class {attribute}{hint}")
    return getattr(loaded, attribute)


def digest_of(name: str) -> str:
    """SHA-256 of the code of the file that defines a class or function: of its syntax tree without docstrings.

    Comments, docstrings and line breaks change nothing. What the file imports is not looked at.
    """
    tree = ast.parse(source_of(name).read_bytes())
    for node in ast.walk(tree):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if documented and ast.get_docstring(node) is not None:  # type: ignore[arg-type]
            node.body = node.body[1:]  # type: ignore[attr-defined]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def source_of(name: str) -> Path:
    """The file in which a class is defined."""
    try:
        path = inspect.getsourcefile(_attribute(name))
    except TypeError:
        path = None
    if path is None or not Path(path).is_file():
        raise ValueError(f"{name}: its source file is not there, so nobody could say what a result is the result of")
    return Path(path)
