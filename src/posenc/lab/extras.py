"""What optional extras bring, loaded when it is first used."""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from typing import Any


def load(module: str, *, packages: Collection[str], extra: str, user: str) -> Any:
    """A module of the lab that needs an extra; a ValueError that says which, where it is not installed.

    Args:
        module: to import.
        packages: that the extra brings, as they are imported.
        extra: its name.
        user: who needs it, as it was typed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in packages:
            raise
        raise ValueError(
            f"{user} needs {error.name}: pip install 'posenc[{extra}]', in a clone '.[{extra}]'"
        ) from error
