"""The evidence behind the table of engines: references, disputed cells, second routes, vectors.

References come from `benchmarks.engines.reference_formulas`, disputed cells from the bench's records, the rest from
``benchmarks/results/engine_hand_checks.json`` and ``vectors_in_engines.json``, which scripts of the bench write.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.engines.check import Cell
from benchmarks.engines.reference_formulas import Source, authors_sources
from benchmarks.engines.table import cases_by_name

from guide.records import ROOT
from posenc.hf.serving.table import title

HAND = ROOT / "benchmarks" / "results" / "engine_hand_checks.json"
VECTORS = ROOT / "benchmarks" / "results" / "vectors_in_engines.json"
_ENGINE = "; this engine: "


@cache
def hand_checks() -> tuple[dict[str, Any], ...]:
    """The record of benchmarks/engines/hand_checks.py, a line for each cell."""
    return tuple(json.loads(Path(HAND).read_text(encoding="utf-8")))


@cache
def vector_runs() -> dict[str, Any]:
    """The record of benchmarks/engines/vectors_in_engines.py, by engine."""
    content: dict[str, Any] = json.loads(Path(VECTORS).read_text(encoding="utf-8"))
    return content


def evidence(cells: Sequence[Cell]) -> list[str]:
    """The sections, as paragraphs."""
    parts = ["## Reference values", _references(cells)]
    disputed = [cell for cell in cells if cell.state == "disputed"]
    if disputed:
        parts += ["## Disputed", _disputed(disputed)]
    return [*parts, "## Cells checked by a second route", _hand(cells), "## The test vectors in engines", _vectors()]


def _references(cells: Sequence[Cell]) -> str:
    rows: dict[Source, dict[str, bool]] = {}
    alone: dict[str, dict[str, None]] = {}
    for name in dict.fromkeys(cell.case for cell in cells):
        case = cases_by_name()[name]
        sources = authors_sources(case.config, case.length)
        for source, gain in sources.items():
            rows.setdefault(source, {})[case.row] = gain
        if not sources:
            alone.setdefault(case.model, {})[case.row] = None
    lines = ["| authors' code | rope types |", "|---|---|"]
    for source, known in rows.items():
        words = "; ".join(row if gain else f"{row} (frequencies alone)" for row, gain in known.items())
        lines.append(f"| [{source.name}]({source.url}) | {words} |")
    missing = "; ".join(f"{model}: {', '.join(known)}" for model, known in alone.items())
    return (
        "A result counts as right or wrong only where three references agree to 1e-6: posenc, transformers, and the "
        "formula of the rope type's authors. `benchmarks.engines.reference_formulas` implements the authors' formulas "
        "again in plain Python, without posenc's code, and the tests compare them with numbers that the authors' files "
        "computed at the commits linked here. *Frequencies alone*: the key that decides the gain exists in "
        "transformers but not in the authors' code, so the gain has two references. M-RoPE on text is RoPE, as all "
        "coordinates are equal ([arXiv 2409.12191](https://arxiv.org/abs/2409.12191), section 2.1).\n\n"
        + "\n".join(lines) + (f"\n\nTwo references only: {missing}." if missing else "")
    )  # fmt: skip


def _disputed(cells: Sequence[Cell]) -> str:
    groups: dict[tuple[str, str], dict[str, dict[str, list[str]]]] = {}
    for cell in cells:
        values, _, whose = cell.text.partition(_ENGINE)
        answers = groups.setdefault((cell.row, values), {}).setdefault(cell.engine, {})
        answers.setdefault(whose, []).append(f"{cell.model} {cell.spelling}")
    lines = []
    for (row, values), engines in groups.items():
        lines.append(f"**{row}**: {values}.\n\n| engine | computes |\n|---|---|")
        for engine, answers in engines.items():
            words = [whose if len(answers) == 1 else f"{whose} ({', '.join(names)})" for whose, names in
                     answers.items()]  # fmt: skip
            lines[-1] += f"\n| {title(engine)} | {'; '.join(words)} |"
    return "The references differ, so no answer is counted as right or wrong: " + "\n\n".join(lines)


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
        "Two cells of each engine, one right and one wrong where there is a wrong one, were computed again by "
        "[a script](../benchmarks/engines/hand_checks.py) that shares no code with the check. It calls the engine's "
        "class or program on a config written by hand and compares the result with its own formulas, or, for whole "
        "models, with a Llama in numpy. Its random weights differ from the check's, and so do differences of "
        "logits.\n\n" + "\n".join(lines)
    )


def _vectors() -> str:
    lines = ["| engine | version | date | pass | fail | refused | not tested |", "|" + "---|" * 7]
    for engine, run in vector_runs().items():
        counts = Counter(result["result"] for result in run["cases"].values())
        numbers = " | ".join(str(counts[name]) for name in ("pass", "fail", "refused", "not run"))
        lines.append(f"| {title(engine)} | {run['version']} | {run['date']} | {numbers} |")
    return (
        "Engines' rotary classes on the [published vectors](engines.md#test-vectors), compared with the numbers of "
        "that file alone (heads of 64 channels, original length 4,096). A test checks that each result agrees with "
        "the table above.\n\n" + "\n".join(lines)
    )
