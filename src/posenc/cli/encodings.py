"""``posenc list`` and ``posenc info``: the catalogue as plain values, and what `attention` makes of one encoding."""

from __future__ import annotations

import inspect
import json
import re
import sys
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

import posenc
from posenc.attend import explain_backend
from posenc.call import AttentionCall, prepare_call, with_structures
from posenc.catalogue import CATALOGUE, Entry, find
from posenc.catalogue.measured import tables_with
from posenc.cli.columns import NARROW, labelled, paragraph, table, width_of, wrapped
from posenc.encoding import Encoding
from posenc.structure import Structure
from posenc_cli.printable import fitting

FACTS = (
    "name", "hook_point", "title", "formula", "source", "parameters", "cost", "past_training", "reads", "kind",
    "learned", "extension", "used_in", "avoid",
)  # fmt: skip
_LABELS = {
    "name": "name", "formula": "formula", "hook_point": "acts on", "source": "source", "parameters": "parameters",
    "cost": "costs", "past_training": "beyond training",
    "reads": "reads", "extension": "extension", "used_in": "used in", "avoid": "do not use it",
    "class": "class", "import": "import", "example": "for a model",
}  # fmt: skip
_HEADS = ("name", "acts on", "encoding", "parameters")
_NOTE = "posenc info NAME shows one encoding; posenc compare measures them."
TOKENS = 512
_ROTATES = "rotates queries and keys before their dot product, so every backend supports it"
_DISTANCE = "a function of the distance alone"
_UNSTRUCTURED = "none stated: scores follow the definition, all at once or by blocks"


def list_encodings(options: Namespace) -> int:
    """Print the matching entries: a table, a line of fields for each if stdout is not a terminal, or JSON."""
    words = [word.lower() for word in options.words]
    entries = [
        entry for entry in CATALOGUE.values()
        if all(word in f"{entry.name} {entry.hook_point} {entry.title}".lower() for word in words)
    ]  # fmt: skip
    out = sys.stdout
    if options.as_json:
        out.write(json.dumps([facts_of(entry) for entry in entries], indent=2) + "\n")
        return 0
    if not entries:
        raise ValueError("no encoding fits all of that; posenc list without words shows all encodings")
    rows = [(entry.name, entry.hook_point, entry.title, entry.parameters) for entry in entries]
    width = width_of(out)
    if width is None:
        lines = [fitting("\t".join(row), out) for row in rows]
    elif width < NARROW:
        lines = [line for row in rows for line in (f"{row[0]} ({row[1]})", *wrapped(fitting(row[2], out), width, "  "))]
    else:
        lines = [*table(_HEADS, rows, width, out), "", *wrapped(_NOTE, width)]
    out.write("\n".join(lines) + "\n")
    return 0


def info(arguments: Namespace) -> int:
    """Print the facts, the options of the class, the backends of attention, and the comparisons that include it."""
    entry, out = find(arguments.name), sys.stdout
    facts, options, backends = facts_of(entry), options_of(entry), backends_of(entry)
    if arguments.as_json:
        out.write(json.dumps({**facts, "options": options, "attention": backends}, indent=2) + "\n")
        return 0
    known = [(label, str(facts[key])) for key, label in _LABELS.items() if facts[key]]
    known += [("structure", backends["structure"])]
    known += [("attention", f"{work}: {words}") for work, words in backends["backends"].items()]
    known += [("measured", page) for page in facts["tables"] or ["in no recorded comparison"]]
    lines = ["", *paragraph(facts["title"], out), "", *labelled(known, out)]
    if options:
        lines += [
            "",
            *labelled([("options", "of the class, each with its default; options without one are required")], out),
        ]
        lines += labelled([(_head(option), option["meaning"]) for option in options], out)
    out.write("\n".join(lines) + "\n")
    return 0


def _head(option: dict[str, str | None]) -> str:
    default = "" if option["default"] is None else f"={option['default']}"
    return f"  {option['name']}{default}"


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


def backends_of(entry: Entry) -> dict[str, Any]:
    """``structure`` in words, and under ``backends`` what `attention` chooses for a sequence on a CPU."""
    if entry.hook_point == "embedding":
        return {"structure": "acts before attention, so every backend supports it", "backends": {}}
    from posenc.testing.cases import Case, heads_of, tokens_of  # a list of names needs none of them

    case = Case.from_catalogue(entry.name)
    encodings = case.fresh()
    q, k, v = (part.float() for part in heads_of(case, TOKENS, TOKENS, batch=1))
    x = tokens_of(case, TOKENS, dtype=torch.float32)
    where = case.positions(torch.arange(TOKENS)) if case.axes > 1 else None
    causal = case.axes == 1
    explained = partial(explain_backend, encodings=encodings, q_pos=where, k_pos=where, x=x, causal=causal)
    with torch.no_grad():
        call = prepare_call(q, k, v, encodings, q_pos=where, k_pos=where, x=x, causal=causal)
        structure = _structure(encodings, with_structures(call)) if encodings else "no encoding: plain scores"
        inference = explained(q, k, v)
    training = explained(q.requires_grad_(), k, v)
    how = {"inference": f"{inference.backend}, {inference.how}", "training": f"{training.backend}, {training.how}"}
    return {"structure": structure, "backends": how}


def _structure(encodings: Sequence[Encoding], call: AttentionCall) -> str:
    """What the backend of attention is told, in words; for a structure, the first words of its docstring."""
    kinds: list[Structure | None]
    if call.weight is not None:
        kinds = [call.weight.structure()]
    elif call.score:
        kinds = [kind for structures in call.structures for kind in ([None] if structures is None else structures)]
    elif call.bias:
        bias, tokens = call.bias[0], call.q.shape[2]
        if bias.of_distance(torch.arange(-2, 1)) is not None:
            return _DISTANCE
        kinds = [bias.network(tokens, tokens, like=call.q)]
    else:
        return _ROTATES
    return "; ".join(_UNSTRUCTURED if kind is None else _summary(type(kind)) for kind in kinds)


def _summary(kind: type) -> str:
    return " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split()).rstrip(".")
