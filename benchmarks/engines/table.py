"""``python -m benchmarks.engines.table``: makes the table of engines that `posenc.hf` carries from the records.

The bench's records (benchmarks/engines/records) are the one source. The table holds what advice needs
without torch: for each engine, version, row and spelling the states with the model types they hold for, the largest
gap, and the remedy that was run. A test fails where the file is older than the records.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.engines import lines
from benchmarks.engines.cases import Case, cases
from benchmarks.engines.check import Cell, Engine, committed, worst

from posenc.hf import extend_config, read_rope
from posenc.hf.config.text_config import find_text_config, max_length
from posenc.hf.serving.lines import Serving
from posenc.hf.serving.table import rows_of_blocks

CHANGED = {  # whose rotation is another one since the record: (model, command)
    ("google/gemma-3-1b-it", "extend --config-only"), ("internlm/internlm3-8b-instruct", "serve-flags"),
    ("microsoft/phi-4", "extend --config-only"),
}  # fmt: skip
FILE = Path(__file__).parents[2] / "src" / "posenc" / "hf" / "serving" / "engine_table.json"
ABOUT = "Made by python -m benchmarks.engines.table from the records there, whose README says what each field means."
REFERENCE = "transformers"  # whose own record is the noise of float32, not advice


@cache
def cases_by_name() -> dict[str, Case]:
    """The catalogue."""
    return {case.name: case for case in cases()}


def derived() -> dict[str, Any]:
    """The table as it is written."""
    heads, cells = committed()
    engines: dict[str, Any] = {}
    for head in sorted(heads, key=lambda head: (head.engine, head.date)):
        if head.engine != REFERENCE:  # of several versions the last one that was measured
            answered = [cell for cell in cells if (cell.engine, cell.version) == head[:2] and cell.state != "not run"]
            ran = _classes(head)
            classes = {"classes": ran} if ran else {}
            engines[head.engine] = {**_facts(head), **classes, "rows": _rows(answered)}
    return {"about": ABOUT, "engines": engines}


def _facts(head: Engine) -> dict[str, str]:
    return {key: getattr(head, key) for key in ("version", "measures", "date")}


@cache
def _served() -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, dict[str, Any]]]:
    heads, entries = lines.read()
    return heads, entries, dict(lines.published())


def _classes(head: Engine) -> dict[str, dict[str, list[str]]]:
    """By model type the rows that the engine's own class of it computed right in released configs.

    "file": as the config itself says them; "override": by flags that replace its keys (`benchmarks.engines.lines`);
    "nested override", under the type of the whole model: that flags for its text_config were right.
    """
    heads, entries, configs = _served()
    classes: dict[str, dict[str, set[str]]] = {}
    if not any((each["engine"], each["version"]) == head[:2] for each in heads):
        return {}
    for entry in entries:
        if entry["engine"] != head.engine or entry["state"] != "right" or entry["model"] not in configs:
            continue
        config, command = configs[entry["model"]], entry["command"]
        if (entry["model"], command) in CHANGED:
            continue
        if command == "extend --config-only":
            text_config = find_text_config(config)
            config = dict(extend_config(config, 2 * (max_length(text_config) or 0)).config)
        elif command != "serve-flags":  # the plug-in's lines say nothing of the engine's own rotation
            continue
        read = read_rope(config)
        way, model_type = "override" if command == "serve-flags" else "file", read.text_config.model_type
        if read.text_config.path and way == "override":  # of a part of the config, which other classes may lose
            classes.setdefault(str(config.get("model_type")), {}).setdefault("nested override", set()).add("ran")
        rows = classes.setdefault(model_type, {}).setdefault(way, set())
        rows |= set(rows_of_blocks(Serving(read.facts, None).blocks, max_length(read.text_config)))
    return {model: {way: sorted(rows) for way, rows in sorted(ways.items())} for model, ways in sorted(classes.items())}


def _rows(cells: Iterable[Cell]) -> dict[str, Any]:
    """Row → spelling → entries, one for each answer that several model types share."""
    rows: dict[str, dict[str, list[dict[str, Any]]]] = {}
    by_model: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:  # a row is asked at several lengths, and has to be right at all
        by_model.setdefault((cell.row, cell.spelling, cell.model), []).append(cell)
    for cell in map(worst, by_model.values()):
        entries = rows.setdefault(cell.row, {}).setdefault(cell.spelling, [])
        answer: dict[str, Any] = {"state": cell.state, "text": cell.text, "remedy": _remedy(cell)}
        if cell.state not in ("right", "disputed"):  # a figure that is shown belongs to the model type itself
            answer["gap"] = float(f"{cell.gap:.2g}") if cell.gap is not None else None
        answer = {key: value for key, value in answer.items() if value is not None and value != ""}
        for entry in entries:
            if {**entry, **answer} == entry and set(entry) - set(answer) <= {"models"}:
                entry["models"].append(cell.model)
                break
        else:
            entries.append({**answer, "models": [cell.model]})
    return rows


def _remedy(cell: Cell) -> dict[str, Any] | None:
    """What makes the cell right: in words, and by the keys that a block needs more than the case has."""
    remedy = cell.remedy
    if not remedy:
        return None
    words = {key: remedy[key] for key in ("how", "only") if remedy.get(key)}
    words |= {"what": tried(remedy) if remedy["how"] == "none" else remedy["what"]}
    adds = _added_keys(cases_by_name()[cell.case].config, remedy.get("keys") or {})
    return words | ({"adds": adds} if adds else {})


def tried(remedy: Mapping[str, Any]) -> str:
    """What was tried where nothing is right: each change once, and how else it was tried."""
    words: dict[str, None] = {}
    spelled, flags = False, dict[str, None]()
    for what in (attempt["what"] for attempt in remedy["tried"]):
        change, by, flag = what.partition(", by --")
        flags |= {f"--{flag}": None} if by else {}
        change, both = change.removeprefix("both versions' keys, "), change.startswith("both versions' keys, ")
        spelled = spelled or both
        words |= {change: None}
    ways = (["under both versions' keys"] if spelled else []) + [f"by {flag}" for flag in flags]
    return "; ".join([*words, *([f"the changed keys also {' and '.join(ways)}"] if ways else [])])


def _added_keys(config: Mapping[str, Any], keys: Mapping[str, Any]) -> list[str]:
    """Keys of the remedy's block that the case's block lacks, where adding them is all that it does."""
    added: dict[str, None] = {}
    for name, after in keys.items():
        before = config.get(name)
        if name not in ("rope_parameters", "rope_scaling") or not isinstance(before, dict) or not after:
            return []
        if any(after.get(key) != value for key, value in before.items()):
            return []
        added |= dict.fromkeys(key for key in after if key not in before)
    return list(added)


def text() -> str:
    """The table as JSON, a line for each row of an engine."""
    table = derived()
    lines = [f'{{\n "about": {json.dumps(table["about"])},\n "engines": {{']
    engines = []
    for engine, content in table["engines"].items():
        rows = ",\n".join(f"   {json.dumps(row)}: {json.dumps(entries)}" for row, entries in content["rows"].items())
        others = {key: value for key, value in content.items() if key != "rows"}
        facts = "".join(f"  {json.dumps(key)}: {json.dumps(value)},\n" for key, value in others.items())
        engines.append(f' {json.dumps(engine)}: {{\n{facts}  "rows": {{\n{rows}\n  }}\n }}')
    return "\n".join([*lines, ",\n".join(engines), " }", "}"]) + "\n"


if __name__ == "__main__":
    Path(FILE).write_text(text(), encoding="utf-8")
