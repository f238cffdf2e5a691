"""What the table of engines rests on, as sections of its page: witnesses, disputed cells, second routes, vectors.

Witnesses come from `posenc.engines.witnesses`, disputed cells from the records of `posenc engines check`, the rest from
``benchmarks/results/engine_hand_checks.json`` and ``vectors_in_engines.json``, which the scripts of these names write.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from guide.engine_table import cases_by_name
from guide.records import ROOT
from posenc.engines.check import Cell
from posenc.engines.witnesses import Source, witnesses_of
from posenc.hf.serving.engines import title

HAND = ROOT / "benchmarks" / "results" / "engine_hand_checks.json"
VECTORS = ROOT / "benchmarks" / "results" / "vectors_in_engines.json"
_ENGINE = "; this engine: "


@cache
def hand_checks() -> tuple[dict[str, Any], ...]:
    """The record of benchmarks/engine_hand_checks.py, a line for each cell."""
    return tuple(json.loads(Path(HAND).read_text(encoding="utf-8")))


@cache
def vector_runs() -> dict[str, Any]:
    """The record of benchmarks/vectors_in_engines.py, by engine."""
    content: dict[str, Any] = json.loads(Path(VECTORS).read_text(encoding="utf-8"))
    return content


def evidence(cells: Sequence[Cell]) -> list[str]:
    """The sections, as paragraphs."""
    parts = ["## Who says what is right", _witnesses(cells)]
    disputed = [cell for cell in cells if cell.state == "disputed"]
    if disputed:
        parts += ["## Disputed", _disputed(disputed)]
    return [*parts, "## Cells checked by a second route", _hand(cells), "## The test vectors in engines", _vectors()]


def _witnesses(cells: Sequence[Cell]) -> str:
    rows: dict[Source, dict[str, bool]] = {}
    alone: dict[str, dict[str, None]] = {}
    for name in dict.fromkeys(cell.case for cell in cells):
        case = cases_by_name()[name]
        heard = witnesses_of(case.config, case.length)
        for source, gain in heard.items():
            rows.setdefault(source, {})[case.row] = gain
        if not heard:
            alone.setdefault(case.model, {})[case.row] = None
    lines = ["| authors' code | rope types |", "|---|---|"]
    for source, known in rows.items():
        words = ", ".join(row if gain else f"{row} (frequencies alone)" for row, gain in known.items())
        lines.append(f"| [{source.name}]({source.url}) | {words} |")
    missing = "; ".join(f"{model}: {', '.join(known)}" for model, known in alone.items())
    return (
        "A cell has a truth only where three witnesses agree to 1e-6: posenc, transformers, and the code of the rope "
        "type's authors, whose formula `posenc.engines.witnesses` writes down a second time, in plain Python, without "
        "using posenc's. The tests compare each formula with numbers that the authors' files computed at the commits "
        "linked here. Where a row says *frequencies alone*, the key that decides the gain is transformers' own, and "
        "the gain has two witnesses. M-RoPE on text is RoPE, as all coordinates are equal "
        "([arXiv 2409.12191](https://arxiv.org/abs/2409.12191), section 2.1).\n\n" + "\n".join(lines)
        + (f"\n\nTwo witnesses only: {missing}." if missing else "")
    )  # fmt: skip


def _disputed(cells: Sequence[Cell]) -> str:
    groups: dict[tuple[str, str], dict[str, dict[str, list[str]]]] = {}
    for cell in cells:
        values, _, whose = cell.text.partition(_ENGINE)
        answers = groups.setdefault((cell.row, values), {}).setdefault(cell.engine, {})
        answers.setdefault(whose, []).append(f"{cell.model} {cell.spelling}")
    lines = []
    for (row, values), engines in groups.items():
        lines.append(f"**{row}**: {values}.\n\n| engine | its answer |\n|---|---|")
        for engine, answers in engines.items():
            words = [whose if len(answers) == 1 else f"{whose} ({', '.join(names)})" for whose, names in
                     answers.items()]  # fmt: skip
            lines[-1] += f"\n| {title(engine)} | {'; '.join(words)} |"
    return "The witnesses differ, so that nobody is right or wrong here: " + "\n\n".join(lines)


def _hand(cells: Sequence[Cell]) -> str:
    known = {(cell.engine, cell.case): cell for cell in cells}
    lines = ["| engine | cell | by hand | in the table | route | date |", "|" + "---|" * 6]
    for line in hand_checks():
        cell = known.get((line["engine"], line["case"]))
        if cell is not None:
            words = f"{cell.state}, {cell.gap:.2g}" if cell.gap is not None else cell.state
            by_hand = f"{line['verdict']}, {line['gap']:.2g}" if "gap" in line else line["verdict"]
            lines.append(
                f"| {title(line['engine'])} | {line['case']} | {by_hand} | {words} | {line['route']} | {line['date']} |"
            )
    return (
        "Two cells of each engine, a right and a wrong one where there is a wrong one, were computed again by "
        "[a script](../benchmarks/engine_hand_checks.py) that shares no code "
        "with the check: the engine's class or program is called by hand on a config written by hand, and compared "
        "with formulas of its own; whole models with a Llama in numpy. Gaps of logits belong to other random weights "
        "than the gaps of the table.\n\n" + "\n".join(lines)
    )


def _vectors() -> str:
    lines = ["| engine | version | date | pass | fail | refused | not asked |", "|" + "---|" * 7]
    for engine, run in vector_runs().items():
        counts = Counter(result["result"] for result in run["cases"].values())
        numbers = " | ".join(str(counts[name]) for name in ("pass", "fail", "refused", "not run"))
        lines.append(f"| {title(engine)} | {run['version']} | {run['date']} | {numbers} |")
    return (
        "The [published vectors](engines.md#test-vectors) given to engines' rotary classes, with the numbers of the "
        "file alone to compare with (heads of 64 channels, original length 4,096). A test holds each result against "
        "the cell of the same configuration in the table above.\n\n" + "\n".join(lines)
    )
