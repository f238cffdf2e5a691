"""Extracts a few runnable lines of code from docstring examples."""

from __future__ import annotations

import ast
import doctest
import inspect
from collections.abc import Iterable

import posenc
from posenc.catalogue import Entry

_BLANK = "<BLANKLINE>"  # what stands for an empty line in a doctest
_NOPE = """import torch
from posenc import attention

q, k, v = torch.randn(3, 1, 8, 16, 64)
out = attention(q, k, v, [])  # the empty list
"""


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
