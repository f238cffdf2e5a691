"""Recomputes verdicts.md from the records of the run, as plan.md says, with numpy, pandas and scipy; without posenc.

python docs/results/extension-drope/table.py        the table goes to standard output
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from recompute_findings import estimate, half_interval, holm, p_value, run

MARGIN, LEVEL = 0.02, 0.05
DROPE, CONTROL = "drope+continued", "rope+continued"
TUNED = ("pi+tuned", "yarn+tuned", "longrope+tuned")
WINDOW = f"{CONTROL} under its window"
COMPARISONS = (  # (row, its length, compared with, its length), lengths in training lengths
    *((DROPE, times, row, times) for times in (1, 8) for row in TUNED),
    (DROPE, 1, CONTROL, 1),
    *((row, 8, WINDOW, 8) for row in (DROPE, *TUNED)),
    (DROPE, 16, DROPE, 8),
)
ROWS = ("rope", "pi", "ntk", "yarn", "drope", CONTROL, WINDOW, DROPE, *TUNED)
TIMES = (1, 2, 4, 8, 16)


def verdict(mean: float, half95: float, half90: float, p: float) -> str:
    """By the rules of plan.md; lower is better."""
    if abs(mean) + half90 < MARGIN:
        return "equivalent"
    if p < LEVEL and abs(mean) > half95:
        return "better" if mean < 0 else "worse"
    return "inconclusive"


def signed(value: float, digits: int = 3) -> str:
    """A number with its sign."""
    return f"{value:+.{digits}f}".replace("-", "−")


def main() -> None:
    """Print the table."""
    data = run("extension-drope")
    differences = []
    for row, times, other, other_times in COMPARISONS:
        a, b = data.table(row, times).align(data.table(other, other_times), join="inner")
        differences.append((a - b).to_numpy())
    adjusted = holm(np.array([p_value(table) for table in differences]))
    lines = [
        f"# Verdicts of [plan.md](plan.md): {data.seeds('rope')} seeds, {data.documents} documents, bits per byte",
        "",
        "Made by `python docs/results/extension-drope/table.py` from records.parquet. ± is half of the 95 % interval; "
        f"p is adjusted by Holm over the {len(COMPARISONS)} comparisons; the margin is {MARGIN}.",
        "",
        "| row | less | difference | 90 % interval | p | verdict |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]
    for (row, times, other, other_times), table, p in zip(COMPARISONS, differences, adjusted, strict=True):
        mean, half95, half90 = table.mean(), half_interval(table, 0.95), half_interval(table, 0.9)
        lines.append(
            f"| {row} at {times}× | {other} at {other_times}× | {signed(mean)} ± {half95:.3f} | "
            f"{signed(mean - half90)} to {signed(mean + half90)} | {p:.2g} | {verdict(mean, half95, half90, p)} |"
        )
    times = " | ".join(f"{t}×" for t in TIMES)
    lines += ["", f"| row | learned | {times} |", "| --- | ---: |" + " ---: |" * len(TIMES)]
    for row in ROWS:
        learned = f"{data.learners(row)} of {data.seeds(row)}" if " under " not in row else ""
        cells = []
        for t in TIMES:
            if row == WINDOW and t == 1:
                cells.append("")
                continue
            value = estimate(data.table(row, t).to_numpy(), 1)
            cells.append(f"{value:.3f} ± {value.half:.3f}")
        lines.append(f"| {row} | {learned} | {' | '.join(cells)} |")
    ngram = data.ngram
    lines += ["", f"The n-gram of the training text has {ngram:.3f} ± {ngram.half:.3f} on the same targets.", ""]
    sys.stdout.write("\n".join(lines))


if __name__ == "__main__":
    main()
