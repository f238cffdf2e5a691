"""``posenc engines``: check engines' rotation code, and probe whether a running server applies its model's scaling."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from posenc.arguments import shown
from posenc.engines.endpoint import Endpoint
from posenc.engines.probe import probe
from posenc_cli.exit_codes import FAULT, OK, SUSPICION


def run(
    *,
    what: str,
    checkpoint: str | None,
    as_json: bool,
    engines: list[str],
    ropes: list[str],
    pythons: list[str],
    out: str | None,
    remedies: bool,
    as_markdown: bool,
    endpoint: str | None,
    original: int | None,
    length: int | None,
    model: str,
    api_key_env: str,
    requests: int,
    seconds: float,
) -> int:
    """Check engines, or probe a server, and print what was found.

    Raises:
        ValueError: as `posenc.engines.probe.probe` and `posenc.engines.check.run_check`, for a checkpoint that cannot
            be read, and for an environment variable that is not set.
        OSError: for a server that cannot be reached.
    """
    if what == "check":
        if endpoint is not None:
            raise ValueError("--endpoint is an option of probe: posenc engines probe --endpoint URL")
        if checkpoint is not None:
            return _check_checkpoint(checkpoint, engines, pythons, as_json)
        return _check(engines, ropes, pythons, out, remedies, as_json, as_markdown)
    if endpoint is None:
        raise ValueError("probe needs --endpoint URL, the root of a server with /v1/completions")
    if checkpoint is not None:
        trained, longest = _lengths_of(checkpoint)
        original, length = original or trained, length or longest
    if api_key_env and api_key_env not in os.environ:
        raise ValueError(f"--api-key-env: the environment variable {api_key_env} is not set")
    server = Endpoint(endpoint, model, os.environ.get(api_key_env, ""), requests, seconds)
    result = probe(server, original=original, length=length, progress=_report)
    sys.stdout.write((result.json() if as_json else str(result)) + "\n")
    if result.faults:
        return FAULT
    return OK if result.scaling == "applied" else SUSPICION


def _check(
    engines: list[str],
    ropes: list[str],
    pythons: list[str],
    out: str | None,
    remedies: bool,
    as_json: bool,
    as_markdown: bool,
) -> int:
    from posenc.engines.adapters import NAMES
    from posenc.engines.cases import cases
    from posenc.engines.check import disputes, length_lines, markdown, reference_names, run_check, table

    heads, cells, absent = run_check(
        engines or NAMES, rows=ropes, pythons=_interpreters(pythons), record=Path(out) if out else None,
        remedies=remedies, progress=_report,
    )  # fmt: skip
    granted = length_lines(cells, cases())
    if as_json:
        names = {cell.case for cell in cells}
        content = {"engines": [head._asdict() for head in heads], "cells": [cell._asdict() for cell in cells],
                   "granted": granted,
                   "references": {case.name: reference_names(case) for case in cases() if case.name in names},
                   "not_installed": absent}  # fmt: skip
        sys.stdout.write(json.dumps(content, indent=1) + "\n")
    elif as_markdown:
        sys.stdout.write(markdown(cells) if cells else "")
        sys.stdout.write("".join(["\n", *(f"- {line}\n" for line in granted)]) if granted else "")
    else:
        for head in heads:
            sys.stdout.write(f"{head.engine} {head.version}   {head.measures}   {head.code}   {head.date}\n")
        sys.stdout.write("\n" + _aligned(list(table(cells))) if cells else "")
        sys.stdout.write("".join(f"{line}\n" for line in disputes(cells)))
        sys.stdout.write("".join(["\n", *(f"{line}\n" for line in granted)]) if granted else "")
    if not as_json:
        for line in [*absent, *_without_answers(heads, cells)]:
            sys.stderr.write(f"{line}\n")
    return _code([cell.state for cell in cells])


def _without_answers(heads: list[Any], cells: list[Any]) -> list[str]:
    """A line for each engine of which nothing was compared, with the reasons."""
    lines = []
    for head in heads:
        of_engine = [cell for cell in cells if cell.engine == head.engine]
        if of_engine and all(cell.state == "not run" for cell in of_engine):
            reasons = Counter(cell.text for cell in of_engine).most_common(3)
            lines.append(
                f"{head.engine}: nothing was compared: "
                + "; ".join(f"{reason} ({count} cases)" for reason, count in reasons)
            )
    return lines


def _check_checkpoint(checkpoint: str, engines: list[str], pythons: list[str], as_json: bool) -> int:
    """Recorded results for a config's kinds of blocks, and results of the engines that run here."""
    from posenc.engines.checkpoint import check_checkpoint
    from posenc.input_files import naming

    with naming(checkpoint):
        lines = check_checkpoint(Path(checkpoint), engines, _interpreters(pythons))
    if as_json:
        sys.stdout.write(json.dumps([line._asdict() for line in lines], indent=1) + "\n")
    else:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    return _code([line.state for line in lines])


def _code(states: list[Any]) -> int:
    if any(state in ("off", "ignored") for state in states):
        return FAULT
    compared = [state for state in states if state != "not run"]
    return OK if compared and all(state == "right" for state in compared) else SUSPICION


def _interpreters(pythons: list[str]) -> dict[str, str]:
    result = {}
    for entry in pythons:
        name, equals, path = entry.rpartition("=")
        if not equals or not name or not path:
            raise ValueError(f"--python must be NAME=PATH, as vllm=/envs/vllm/bin/python, got {shown(entry)}")
        result[name] = path
    return result


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "".join(
        "   ".join(field.ljust(width) for field, width in zip(row, widths, strict=True)).rstrip() + "\n" for row in rows
    )


def _report(line: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"{line}\n")


def _lengths_of(checkpoint: str) -> tuple[int | None, int | None]:
    """The trained length and the longest length that a checkpoint's configuration tells."""
    from posenc.hf import read_rope
    from posenc.hf.config.rotation import text_rope
    from posenc.hf.explanation.report import longest_length, trained_length
    from posenc.input_files import naming

    with naming(checkpoint):
        read = read_rope(Path(checkpoint))
    ropes = [text_rope(rotation) for rotation in read.rotations.values() if rotation is not None]
    trained = [length for rope in ropes if (length := trained_length(read, rope)) is not None]
    longest = [length for rope in ropes if (length := longest_length(read, rope)) is not None]
    return max(trained, default=None), max(longest, default=None)
