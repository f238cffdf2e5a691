"""Docstrings: those of modules in parts, those of classes for Markdown, and their examples as runnable code."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import griffe

import posenc
from posenc.catalogue import Entry
from posenc.frequencies.modules import home_of

_BLANK = "<BLANKLINE>"  # what stands for an empty line in a doctest
_NOPE = """import torch
from posenc import attention

q, k, v = torch.randn(3, 1, 8, 16, 64)
out = attention(q, k, v, [])  # the empty list
"""
_FIELDS = ("Source", "Checked against", "Departs from the source")


@dataclass(frozen=True)
class Described:
    """What a module says of itself: first line, formula and words, and the fields at its end."""

    first: str
    body: str
    fields: dict[str, str]


def described(entry: Entry) -> Described | None:
    """The docstring of the module that an entry's class, or its scaling, lies in; None for the empty list.

    Where a module has several encodings with sources of their own, the fields are those of the class's docstring.
    """
    cls = entry.scaling or entry.encoding
    if cls is None:
        return None
    body, fields = _parted(inspect.cleandoc(sys.modules[home_of(cls)].__doc__ or ""))
    first, _, rest = body.partition("\n\n")
    return Described(" ".join(first.split()), rest.strip("\n"), fields or _parted(inspect.getdoc(cls) or "")[1])


def _parted(text: str) -> tuple[str, dict[str, str]]:
    """A docstring up to its fields, and the fields, which a blank line ends."""
    start = re.search(rf"^{_FIELDS[0]}: ", text, re.M)
    body, end = (text, "") if start is None else (text[: start.start()], text[start.start() :].partition("\n\n")[0])
    parts = re.split(rf"^({'|'.join(_FIELDS)}): ", end, flags=re.M)[1:]
    return body, {name: " ".join(words.split()) for name, words in zip(parts[::2], parts[1::2], strict=True)}


class Fenced(griffe.Extension):
    """Doctests of docstrings as blocks of code: Markdown would read their ``>>>`` as quotations."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """A docstring whose paragraphs with ``>>>`` are fenced.

    >>> print(fenced("It.\\n\\n>>> 1\\n1"))
    It.
    <BLANKLINE>
    ```pycon
    >>> 1
    1
    ```
    """
    return "\n\n".join(
        f"```pycon\n{part}\n```" if part.lstrip().startswith(">>>") else part for part in text.split("\n\n")
    )


def example_of(entry: Entry) -> str:
    """The first example of an entry's class, or of its scaling's, with the imports that it needs."""
    cls = entry.scaling or entry.encoding
    if cls is None:
        return _NOPE
    examples = doctest.DocTestParser().get_examples(inspect.getdoc(cls) or "")
    if not examples:
        raise ValueError(f"{cls.__name__} has no example: give its docstring one")
    lines = []
    for example in examples:
        lines.append(example.source.rstrip())
        lines += [f"# {line}" for line in example.want.splitlines() if line != _BLANK]
    code = "\n".join(lines)
    written = {node.lineno: node for node in ast.parse(code).body if isinstance(node, ast.ImportFrom)}
    code = "\n".join(line for number, line in enumerate(code.splitlines(), 1) if number not in written)
    return f"{_imports(code, written.values())}\n\n{code}\n"


def _imports(code: str, written: Iterable[ast.ImportFrom]) -> str:
    """Import lines for what a piece of code reads and does not make, and those that its example has itself."""
    tree = ast.parse(code)
    imported = {alias.asname or alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom | ast.Import)
                for alias in node.names}  # fmt: skip
    read = {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    } - imported
    packages = {
        name: package.__name__
        for package in (
            posenc.embedding,
            posenc.rotary,
            posenc.bias,
            posenc.score,
            posenc.weight,
            posenc.frequencies,
            posenc,
        )
        for name in package.__all__
    }  # the last one that has a name: posenc itself for the most used ones
    public: dict[str, list[str]] = {}
    for name in sorted(read & packages.keys()):
        public.setdefault(packages[name], []).append(name)
    for statement in written:
        names = public.setdefault(statement.module or "", [])
        public[statement.module or ""] = sorted({*names, *(alias.name for alias in statement.names)})
    lines = ["import torch"] if "torch" in read else []
    lines += ["from torch import nn"] if "nn" in read else []
    lines += [f"from {package} import {', '.join(names)}" for package, names in sorted(public.items())]
    return "\n".join(lines)
