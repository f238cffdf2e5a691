"""What a page may cite: every quantity of a recorded run and of the benchmarks, by name.

``numbers.toml`` cites them (`guide.numbers`). Means, intervals and differences of runs are those of
docs/results/recompute_findings.py, which shares no code with `posenc.lab`: a page is compared with a second
computation, and a test compares both for every row of every run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any

from results.recompute_findings import Number, Readings, Run

from guide.records import ROOT, records_frame
from posenc.catalogue import CATALOGUE
from posenc.hf.serving.table import CONVERTER, MLX, SGLANG, VLLM, engine_result, engine_table
from posenc.lab.metrics import FULL

ENGINES = (
    VLLM, SGLANG, CONVERTER, MLX, "litgpt", "torchtitan", "torchtune", "unsloth", "exllamav3", "lmdeploy",
)  # fmt: skip
NONE = "–"  # where nothing was measured


@cache
def recorded(name: str) -> Run:
    """A recorded run by the name of its folder."""
    return Run(name)


@cache
def context_study(part: str) -> Readings:
    """A part of the study of context extension (docs/results/context-study), such as "likelihood"."""
    return Readings(part)


def benchmark(name: str, section: str, row: str, column: str) -> float:
    """A number of benchmarks/results: file, words of its section's heading, row, and what its column begins with."""
    text = (ROOT / "benchmarks" / "results" / f"{name}.md").read_text(encoding="utf-8")
    parts = [part for part in re.split(r"^## ", text, flags=re.M)[1:] if section in part.partition("\n")[0]]
    if not parts:
        raise ValueError(f"benchmarks/results/{name}.md has no section {section!r}")
    heads, _, *lines = (
        [c.strip() for c in line.strip("|").split("|")] for line in parts[0].splitlines() if "|" in line
    )
    index = next((n for n, head in enumerate(heads) if head.startswith(column)), None)
    cells = [line for line in lines if line[0] == row]
    if index is None or not cells:
        raise ValueError(f"benchmarks/results/{name}.md, {section}: no row {row!r} or no column {column!r}")
    return _first_number(cells[0][index])


def encodings() -> int:
    """Encodings and scalings of the catalogue, without the empty list."""
    return sum(entry.hook_point != "none" for entry in CATALOGUE.values())


def _first_number(text: str) -> float:
    number = re.search(r"[\d,]*\.?\d+", text)
    if number is None:
        raise ValueError(f"no number in {text!r}")
    return float(number[0].replace(",", ""))


def engines_tried() -> int:
    """Engines and libraries whose own code was measured; of llama.cpp its converter, which decides what it runs."""
    return len(ENGINES)


def engines_off() -> int:
    """Those that compute at least one kind of rotation differently from transformers, without an error."""
    return sum(_is_off(engine) for engine in ENGINES)


def _is_off(engine: str) -> bool:
    """Of any row and spelling that the engine was asked, as Llama where it was asked with Llama."""
    for row, spellings in engine_table()[engine]["rows"].items():
        for spelling, entries in spellings.items():
            tested = [model for entry in entries for model in entry["models"]]
            result = engine_result(engine, row, spelling, "llama" if "llama" in tested else tested[0])
            if result.right is False and result.gap is not None:
                return True
    return False


def by_view(run: Run, views: Mapping[str, str]) -> str:
    """Images: per cent recognised as trained and under each view, with half of the 95 % interval.

    Bold where a row is as good under the view as without it or better; in brackets where it did not learn the task.
    """
    verdicts = records_frame(run.folder.name)
    rows = {row.spec: row.learned for row in verdicts.rows if row.view == FULL}
    lines = []
    for spec in sorted(rows, key=run.mean, reverse=True):
        cells = [_image(run.mean(spec), "{}" if rows[spec] else "({})")]
        for view in views.values():
            row = verdicts.row(spec, view)
            stable = row is not None and rows[spec] and row.verdict.stable
            mark = "**{}**" if stable else "{}"
            cells.append(NONE if row is None else _image(run.mean(f"{spec} under {view}"), mark))
        lines.append([spec, *cells])
    return table(["encoding", "trained", *views], lines)


def _image(mean: Number, mark: str) -> str:
    return mark.format(f"{mean:.0f} ± {mean.half:.0f}")


def table(heads: Collection[str], lines: Collection[Collection[str]]) -> str:
    """A table in Markdown with numbers on the right."""
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *lines))


QUANTITIES: Sequence[Callable[..., Any]] = (
    recorded, context_study, benchmark, encodings, engines_tried, engines_off, by_view,
)  # fmt: skip
