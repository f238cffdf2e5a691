"""``python -m benchmarks.engines``: engines' own code on configs of every rope type, or on one of yours."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.engines.adapters import NAMES
from benchmarks.engines.cases import cases
from benchmarks.engines.check import (
    Cell,
    Engine,
    State,
    disputes,
    reference_names,
    run_check,
    table,
)
from benchmarks.engines.checkpoint import check_config


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if every result is right, 1 if an engine is off or ignores a key, 3 if it refuses or nothing was compared."""
    parser = argparse.ArgumentParser("python -m benchmarks.engines", description=__doc__)
    parser.add_argument("--engine", action="extend", nargs="+", metavar="NAME", dest="engines",
                        help="engines to run (default: all installed); FILE.py:NAME is your own adapter")  # fmt: skip
    parser.add_argument("--rope", action="extend", nargs="+", default=[], metavar="TYPE", dest="ropes",
                        help="rope types (yarn) or rows of the table ('yarn: betas') (default: all)")  # fmt: skip
    parser.add_argument("--checkpoint", type=Path, metavar="PATH", help="one config instead: its file or folder")
    parser.add_argument("--python", action="append", default=[], metavar="NAME=PATH", dest="pythons",
                        help="interpreter with that engine and posenc (default: this one)")  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="FILE", help="record; finished cases in it are not run again")
    parser.add_argument("--remedies", action="store_true",
                        help="for each wrong result, try other keys, flags and plug-ins in the engine")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print heads and cells as JSON")
    options = parser.parse_args(arguments)
    pythons = {}
    for entry in options.pythons:
        name, _, path = entry.rpartition("=")
        if not name or not path:
            parser.error(f"--python must be NAME=PATH, as vllm=/envs/vllm/bin/python, got {entry!r}")
        pythons[name] = path
    engines = options.engines or NAMES
    if options.checkpoint is not None:
        return _one_config(options.checkpoint, engines, pythons)
    heads, cells, absent = run_check(
        engines, rows=options.ropes, pythons=pythons, record=options.out, remedies=options.remedies,
        progress=lambda line: print(line, file=sys.stderr),
    )  # fmt: skip
    if options.json:
        names = {cell.case for cell in cells}
        content = {"engines": [head._asdict() for head in heads], "cells": [cell._asdict() for cell in cells],
                   "references": {case.name: reference_names(case) for case in cases() if case.name in names},
                   "not_installed": absent}  # fmt: skip
        print(json.dumps(content, indent=1))
        return code_of(cell.state for cell in cells)
    print(*(f"{head.engine} {head.version}   {head.measures}   {head.code}" for head in heads), sep="\n")
    print(_aligned(list(table(cells))) if cells else "", *disputes(cells), sep="\n")
    print(*absent, *_without_answers(heads, cells), sep="\n", file=sys.stderr)
    return code_of(cell.state for cell in cells)


def _one_config(path: Path, engines: Sequence[str], pythons: dict[str, str]) -> int:
    config = json.loads((path / "config.json" if path.is_dir() else path).read_text(encoding="utf-8"))
    states = []
    for engine in engines:
        cell = check_config(engine, config, pythons.get(engine, sys.executable))
        print(f"{engine} is not installed" if cell is None else f"{cell.engine} {cell.version}: {cell}")
        states += [cell.state] if cell is not None else []
    return code_of(states)


def code_of(states: Iterable[State]) -> int:
    """The exit code of cells."""
    compared = set(states) - {"not run"}
    if compared & {"off", "ignored"}:
        return 1
    return 0 if compared == {"right"} else 3


def _without_answers(heads: Sequence[Engine], cells: Sequence[Cell]) -> list[str]:
    """A line for each engine of which nothing was compared, with the reasons."""
    lines = []
    for head in heads:
        of_engine = [cell for cell in cells if cell.engine == head.engine]
        if of_engine and all(cell.state == "not run" for cell in of_engine):
            reasons = Counter(cell.text for cell in of_engine).most_common(3)
            words = "; ".join(f"{reason} ({count} cases)" for reason, count in reasons)
            lines.append(f"{head.engine}: nothing was compared: {words}")
    return lines


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "   ".join(field.ljust(width) for field, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


if __name__ == "__main__":
    sys.exit(main())
