"""Packages whose names are imported when they are first used, so that importing one does not load torch.

Reading and explaining a configuration needs no tensor, and torch takes seconds to load.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, str], submodules: str = "", aliases: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], list[str]]:
    """The ``__getattr__`` of a package, and the names that it gives, sorted.

    Args:
        package: its name, ``__name__``.
        homes: names, separated by spaces, by the module that has them.
        submodules: names of modules in the package, which its users reach as attributes.
        aliases: other names of these names.
    """
    home = {name: module for module, names in homes.items() for name in names.split()}
    modules, other_names = set(submodules.split()), aliases or {}

    def get(name: str) -> Any:
        canonical = other_names.get(name, name)
        if canonical in home:
            value = getattr(import_module(home[canonical]), canonical)
            setattr(sys.modules[package], name, value)  # found without this function from now on
            return value
        if name in modules:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, sorted({*home, *other_names, *modules})
