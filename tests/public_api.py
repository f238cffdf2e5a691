"""The public API as text: every public name with its signature. ``python -m tests.public_api`` writes the list anew.

A module is public if it is listed here; a name is public if the module's ``__all__`` has it. Methods and properties
that a class of posenc adds to its base count as well. The list stands in ``public_api.txt``; a change of it is an entry
in the changelog.
"""

from __future__ import annotations

import enum
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

from torch import nn

LIST = Path(__file__).with_suffix(".txt")
MODULES = (
    "posenc", "posenc.embedding", "posenc.rotary", "posenc.bias", "posenc.score", "posenc.weight", "posenc.frequencies",
    "posenc.positions", "posenc.attention_maps", "posenc.schedule", "posenc.layers", "posenc.functional",
    "posenc.distributed",
    "posenc.backends.flex.export", "posenc.diffusion", "posenc.testing", "posenc.hf",
)  # fmt: skip


def public_api() -> str:
    """All public names, one a line, with the signatures of functions, constructors and methods."""
    return "\n".join(line for module in MODULES for line in lines_of(module)) + "\n"


def lines_of(name: str) -> Iterator[str]:
    module = importlib.import_module(name)
    yield name
    for public in sorted(module.__all__):
        value = getattr(module, public)
        if inspect.isclass(value):
            yield f"  class {public}{signature(value)}"
            if value.__module__.startswith("posenc."):
                yield from (f"    {line}" for line in members(value))
        elif callable(value):
            yield f"  {public}{signature(value)}"
        else:
            yield f"  {public}: {type(value).__name__}"


def members(cls: type) -> Iterator[str]:
    """Public methods and properties that posenc's own classes define, by name."""
    if issubclass(cls, enum.Enum):
        yield from sorted(cls.__members__)
        return
    inherited = {name for base in (nn.Module, tuple, object) for name in dir(base)}
    for base in cls.__mro__[1:]:  # the protocol is listed once, with the base class of the hook point
        if base.__module__ in ("posenc.encoding", "posenc.frequencies.spectrum"):
            inherited |= set(dir(base))
    defined = {"forward"} & set(vars(cls)) if cls.__module__ == "posenc.encoding" else set[str]()
    for name in sorted((set(dir(cls)) - inherited) | defined):
        owner = next((c for c in cls.__mro__ if name in vars(c)), object)
        if name.startswith("_") or not owner.__module__.startswith("posenc"):
            continue
        value = inspect.getattr_static(cls, name)
        if isinstance(value, property):
            yield f"{name}: property"
        elif isinstance(value, (staticmethod, classmethod)) or callable(value):
            yield f"{name}{signature(getattr(cls, name))}"
        else:
            yield name


def signature(function: object) -> str:
    """Parameters with defaults; annotations are mypy's and pyright's subject."""
    try:
        result = inspect.signature(function)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return "(…)"
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in result.parameters.values()]
    return str(result.replace(parameters=bare, return_annotation=inspect.Signature.empty))


if __name__ == "__main__":
    LIST.write_text(public_api(), encoding="utf-8")
