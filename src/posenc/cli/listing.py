"""``posenc list``: the catalogue, or the matching part of it."""

from __future__ import annotations

import json
import sys
from argparse import Namespace

from posenc.catalogue import CATALOGUE
from posenc.cli.columns import NARROW, table, width_of, wrapped
from posenc.cli.facts import facts_of
from posenc_cli.printable import fitting

_HEADS = ("name", "acts on", "encoding", "parameters")
_NOTE = "posenc info NAME shows one encoding; posenc compare measures them."


def run(options: Namespace) -> int:
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
