"""An entry of the catalogue as plain values: facts, class, options with their meaning."""

from __future__ import annotations

import inspect
import re
from typing import Any

import posenc
from posenc.catalogue import Entry
from posenc.catalogue.measured import tables_with

FACTS = (
    "name", "hook_point", "title", "formula", "source", "parameters", "cost", "past_training", "reads", "kind",
    "learned", "extension", "used_in", "avoid",
)  # fmt: skip


def facts_of(entry: Entry) -> dict[str, Any]:
    """The facts of the catalogue, and how to import and create the encoding."""
    classes = _classes(entry)
    imported: dict[str, list[str]] = {}
    for cls in classes:
        imported.setdefault(package_of(cls), []).append(cls.__name__)
    return {
        **{name: getattr(entry, name) for name in FACTS},
        "extends_context": entry.extends_context,
        "class": " with ".join(f"{cls.__module__}.{cls.__name__}" for cls in classes) or None,
        "import": "; ".join(f"from {package} import {', '.join(names)}" for package, names in imported.items()) or None,
        "example": _example(entry),
        "tables": tables_with(entry.name),
    }


def _classes(entry: Entry) -> list[type]:
    """The encoding and its scalings."""
    return [cls for cls in (entry.encoding, *(each.scaling for each in (entry, *entry.then))) if cls is not None]


def package_of(cls: type) -> str:
    """The package that a class is imported from: posenc itself for the most used ones, else its hook point's."""
    return "posenc" if cls.__name__ in posenc.__all__ else cls.__module__.rpartition(".")[0]


def options_of(entry: Entry) -> list[dict[str, Any]]:
    """Each option of the class and of its scaling: name, default as text (None: required), and meaning."""
    options = []
    for cls in _classes(entry):
        meanings = meanings_of(inspect.getdoc(cls) or "")
        for name, parameter in inspect.signature(cls).parameters.items():
            needed = parameter.default is inspect.Parameter.empty
            default = None if needed else repr(parameter.default)
            options.append({"of": cls.__name__, "name": name, "default": default, "meaning": meanings.get(name, "")})
    return options


def meanings_of(docstring: str) -> dict[str, str]:
    r"""What the section ``Args:`` of a docstring says about each argument.

    >>> meanings_of("It.\n\nArgs:\n    a, b: sizes,\n        in tokens.\n    c: a rate.\n\nMore.")
    {'a': 'sizes, in tokens.', 'b': 'sizes, in tokens.', 'c': 'a rate.'}
    """
    section = re.search(r"^Args:\n((?:(?: {4}.*)?\n?)*)", docstring, re.M)
    meanings: dict[str, str] = {}
    names: list[str] = []
    for line in (section.group(1) if section else "").splitlines():
        head = re.match(r"^ {4}(\w+(?:, \w+)*): (.*)", line)
        if head:
            names = head.group(1).split(", ")
        elif not line.strip():
            break
        text = head.group(2) if head else line.strip()
        meanings |= {name: f"{meanings[name]} {text}" if name in meanings and not head else text for name in names}
    return meanings


def _example(entry: Entry) -> str:
    """The call that creates it, with the sizes of an example model."""
    if entry.encoding is None:
        return "encodings=[]"
    sizes: dict[str, object] = {"dim": 512, "num_heads": 8}
    if entry.extends_context:
        sizes |= {"train_length": 2048, "max_length": 8192}
    elif entry.lengths(1):
        sizes["train_length"] = 2048
    elif "max_length" in entry.takes:
        sizes["max_length"] = 2048
    if "size" in entry.needs:
        sizes["size"] = (14, 14)
    return f"posenc.create_encoding({entry.name!r}, {', '.join(f'{word}={value}' for word, value in sizes.items())})"
