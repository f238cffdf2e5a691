"""Classes of one's own, ``module:Class``: imported by the command that trains with them, and by no other.

The folder of a run may come from anybody, and a name in it is data: reading, reporting or exporting a run imports
nothing that it names. A command that trains permits the names that were typed, from the folder that the user names (by
default the current one), and so do the workers that it starts. Whatever else asks for such a class gets a ValueError.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from posenc.encoding import PLACES, Encoding


class Permission(NamedTuple):
    """Which classes may be imported, and from where."""

    names: frozenset[str] = frozenset()
    folder: Path = Path()  # looked in before Python's own path

    def of(self, names: Iterable[str]) -> Permission:
        """The part of it that these names need."""
        return Permission(self.names & set(names), self.folder)


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


def own_class(name: str) -> type[Encoding]:
    """The class; a ValueError where it is not permitted, not there, or no encoding."""
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
        found = getattr(import_module(module), attribute, None)
    except (Exception, SystemExit) as error:
        raise ValueError(
            f"{name}: {module} cannot be imported from {folder} or Python's path: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(found, type) or not issubclass(found, Encoding) or not issubclass(found, tuple(PLACES.values())):
        places = ", ".join(place.__name__ for place in PLACES.values())
        raise ValueError(f"{name}: {module} has no class {attribute} that is one of {places}")
    return found


def digest_of(name: str) -> str:
    """SHA-256 of the file in which a class is defined; not of what that file imports."""
    return hashlib.sha256(source_of(name).read_bytes()).hexdigest()


def source_of(name: str) -> Path:
    """The file in which a class is defined."""
    try:
        path = inspect.getsourcefile(own_class(name))
    except TypeError:
        path = None
    if path is None or not Path(path).is_file():
        raise ValueError(f"{name}: its source file is not there, so nobody could say what a result is the result of")
    return Path(path)
