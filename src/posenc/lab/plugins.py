"""Users' own encodings, tasks and corpora, ``module:name``.

A run folder may come from anybody, so a class name in it is only data: reading or reporting a run imports nothing that
the run names. A command that trains allows exactly the names on its command line (`ImportAllowlist`), from the folder
that the user gives (default: the current one), and hands the same allowlist to its workers. Any other request for a
plugin is a ValueError.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from posenc.encoding import HOOK_POINTS, Encoding


class ImportAllowlist(NamedTuple):
    """The plugins that may be imported, and the folder they are in."""

    names: frozenset[str] = frozenset()
    folder: Path = Path()  # looked in before Python's own path

    def of(self, names: Iterable[str]) -> ImportAllowlist:
        """The same allowlist, limited to these names."""
        return ImportAllowlist(self.names & set(names), self.folder)


_permitted = [ImportAllowlist()]


@contextmanager
def allow_imports(allowlist: ImportAllowlist) -> Iterator[None]:
    """A context in which these plugins may be imported."""
    before, folder = list(sys.path), str(allowlist.folder.resolve())
    if allowlist.names:
        if not allowlist.folder.is_dir():
            raise ValueError(f"--classes-from {allowlist.folder}: no such folder")
        sys.path.insert(0, folder)
    _permitted.append(allowlist)
    try:
        yield
    finally:
        _permitted.pop()
        sys.path[:] = before


def import_allowlist() -> ImportAllowlist:
    """The allowlist in force."""
    return _permitted[-1]


def is_plugin(name: str) -> bool:
    """Whether a name is ``module:Class`` rather than a name of the catalogue."""
    return ":" in name


def is_module_name(name: str) -> bool:
    """Whether a word is ``module:name``, and no path, no ``hf:NAME`` and no HOST:PORT."""
    module, _, attribute = name.partition(":")
    return module != "hf" and attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))


def load_class(name: str, kinds: tuple[type[Any], ...]) -> type[Any]:
    """The class that a name ``module:Class`` stands for, derived from one of ``kinds``; else a ValueError."""
    attribute = _attribute(name)
    if not isinstance(attribute, type) or not issubclass(attribute, kinds):
        needed = ", ".join(kind.__name__ for kind in kinds)
        raise ValueError(f"{name}: there is no class of this name that is one of {needed}")
    return attribute


def load_function(name: str) -> Callable[..., Any]:
    """The function that a name ``module:function`` stands for; a ValueError where it is not permitted or none."""
    attribute = _attribute(name)
    if not callable(attribute):
        raise ValueError(f"{name}: there is no function of this name")
    function: Callable[..., Any] = attribute
    return function


def encoding_class(name: str) -> type[Encoding]:
    """The encoding; a ValueError where it is not permitted, not there, or no encoding."""
    return load_class(name, tuple(HOOK_POINTS.values()))


def _attribute(name: str) -> Any:
    module, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), attribute)):
        raise ValueError(f"{name}: an own class is named as it is imported, like my_module:MyClass")
    if name not in import_allowlist().names:
        raise ValueError(
            f"{name}: a class of somebody's own. Reading a run imports nothing that the run names; posenc compare "
            "imports it, where it is named on the command line (--classes-from says where it lies)"
        )
    folder = import_allowlist().folder.resolve()
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


def code_hash(name: str) -> str:
    """SHA-256 of the file that defines a class or function; what the file imports is not looked at."""
    try:
        path = inspect.getsourcefile(_attribute(name))
    except TypeError:
        path = None
    if path is None or not Path(path).is_file():
        raise ValueError(f"{name}: its source file is not there, so nobody could say what a result is the result of")
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
