"""cost.jsonl, which programs read, and cost.md, which people do. Both appear when everything is measured, or never."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from posenc.lab.cost.conditions import Conditions
from posenc.lab.cost.results import Cost, Costs, Parameters
from posenc.lab.cost.tables import markdown
from posenc.lab.files import MOST_RESULTS, read_bytes, write_atomically
from posenc.lab.foreign import check_spec, check_words

FORMAT = "posenc-lab-cost/1"


def write_cost(folder: Path, costs: Costs) -> list[Path]:
    """Write both files in the place of older ones; returns their paths."""
    data, table = folder / "cost.jsonl", folder / "cost.md"
    lines = [_head(costs), *(_line(cell) for cell in costs.cells)]
    write_atomically(data, "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines).encode())
    write_atomically(table, markdown(costs).encode())
    return [data, table]


def read_cost(folder: Path) -> Costs:
    """Read FOLDER/cost.jsonl.

    Raises:
        ValueError: for a file that is missing, truncated, or of another format.
    """
    path = folder / "cost.jsonl"
    try:
        head, *lines = [json.loads(line) for line in read_bytes(path, MOST_RESULTS).decode().splitlines()]
        if head.get("format") != FORMAT:
            raise ValueError
        conditions = Conditions(**{**head["settings"], "lengths": tuple(head["settings"]["lengths"])})
        parameters = {spec: Parameters(*counts) for spec, counts in head["parameters"].items()}
        cells = tuple(Cost(**{"work" if key == "pass" else key: line[key] for key in line}) for line in lines)
        if len(cells) != head["cells"] or not isinstance(head["command"], str):
            raise ValueError
        for spec in (*parameters, *(cell.encoding for cell in cells)):
            check_spec(spec, path)
        versions, machine = (check_words(head[name], name, path) for name in ("versions", "machine"))
        return Costs(conditions, parameters, cells, versions, machine, head["command"])
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}; posenc cost writes it") from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is truncated, or not of the format {FORMAT}; posenc cost writes it anew") from error


def _head(costs: Costs) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "settings": asdict(costs.conditions),
        "parameters": costs.parameters,
        "versions": costs.versions,
        "machine": costs.machine,
        "command": costs.command,
        "cells": len(costs.cells),
    }


def _line(cell: Cost) -> dict[str, Any]:
    return {"pass" if key == "work" else key: value for key, value in asdict(cell).items()}
