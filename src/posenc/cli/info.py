"""``posenc info``: everything the catalogue knows about one encoding."""

from __future__ import annotations

import json
import sys
from argparse import Namespace

from posenc.catalogue import find
from posenc.cli.backends import backends_of
from posenc.cli.columns import labelled, paragraph
from posenc.cli.facts import facts_of, options_of

_LABELS = {
    "name": "name", "formula": "formula", "hook_point": "acts on", "source": "source", "parameters": "parameters",
    "cost": "costs", "past_training": "beyond training",
    "reads": "reads", "extension": "extension", "used_in": "used in", "avoid": "do not use it",
    "class": "class", "import": "import", "example": "for a model",
}  # fmt: skip


def run(arguments: Namespace) -> int:
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
