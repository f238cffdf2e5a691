"""Packages whose names are imported when they are first used, so that importing one does not load all of it.

Reading and explaining a configuration needs no tensor, and torch takes seconds to load; who uses one encoding does not
wait for the others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, str], submodules: str = "", aliases: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The ``__getattr__`` and ``__dir__`` of a package, and the names that it exports.

    Args:
        package: its name, ``__name__``.
        homes: names, separated by spaces, by the module that has them.
        submodules: names of modules in the package, reached as attributes, in addition to the homes in it.
        aliases: other names of these names.
    """
    home = {name: module for module, names in homes.items() for name in names.split()}
    inner = {module.rpartition(".")[2] for module in homes if module.rpartition(".")[0] == package}
    modules, other_names = {*submodules.split(), *inner}, aliases or {}

    def get(name: str) -> Any:
        canonical = other_names.get(name, name)
        if canonical in home:
            value = getattr(import_module(home[canonical]), canonical)
            setattr(sys.modules[package], name, value)  # found without this function from now on
            return value
        if name in modules:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home, *other_names, *modules})

    return get, names, [*home, *other_names]
