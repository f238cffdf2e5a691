"""Recomputes table.md from the readings of experiment.py with numpy, pandas and scipy alone; posenc is not imported.

python table.py FOLDER        FOLDER has readings/ROW/TASK/readings-*.jsonl; the table goes to standard output
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

ROWS = ("untouched", "control", "drope", "drope_temperature", "yarn", "longrope", "pi")
METHODS = ("yarn", "longrope", "pi")
LENGTHS = (2048, 8192, 12288)
MARGINS = {"perplexity": 0.02, "niah_single": 0.1}
LEVEL = 0.05
COLUMNS = ("family", "row", "against", "length", "difference", "low", "high", "n", "p", "low90", "high90")
KEY = re.compile(r"\| (?P<method>\w+) \| (?P<task>\w+) \| (?P<length>\d+) \| document (?P<item>\d+) ")


def readings(folder: Path) -> pd.DataFrame:
    """One line a reading: row, method, task, length, item, value."""
    lines = []
    for file in sorted(folder.glob("readings/*/*/readings*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            if (match := KEY.search(entry["key"])) is not None:
                lines.append({"row": file.parts[-3], **match.groupdict(), "value": entry["value"]["value"]})
    table = pd.DataFrame(lines).astype({"length": int, "item": int})
    return table.drop_duplicates(["row", "method", "task", "length", "item"])


def series(table: pd.DataFrame, row: str, task: str, length: int, method: str = "as_is") -> pd.Series:
    """Values by item."""
    chosen = (table.row == row) & (table.task == task) & (table.length == length) & (table.method == method)
    return table[chosen].set_index("item").value.sort_index()


def wilson(successes: int, n: int, confidence: float) -> tuple[float, float]:
    """Limits of a share."""
    limits = stats.binomtest(successes, n).proportion_ci(confidence, method="wilson")
    return limits.low, limits.high


def newcombe(a: np.ndarray, b: np.ndarray, confidence: float) -> tuple[float, float]:
    """Limits of a paired difference of shares, Newcombe (1998), method 10."""
    n = len(a)
    p, q = a.mean(), b.mean()
    (p_low, p_high), (q_low, q_high) = (wilson(int(x.sum()), n, confidence) for x in (a, b))
    both, first, second, neither = (a & b).sum(), (a & ~b).sum(), (~a & b).sum(), (~a & ~b).sum()
    product = float((both + first) * (second + neither) * (both + second) * (first + neither))
    phi = 0.0
    if product > 0:
        excess = float(both * neither - first * second)
        phi = (max(excess - n / 2, 0.0) if excess > 0 else excess) / product**0.5

    def distance(x: float, y: float) -> float:
        return float(np.sqrt(max(0.0, x**2 - 2 * phi * x * y + y**2)))

    return p - q - distance(p - p_low, q_high - q), p - q + distance(p_high - p, q - q_low)


def compare(a: pd.Series, b: pd.Series, task: str) -> tuple[float, ...] | None:
    """Difference, its 95 % limits, n, p, its 90 % limits; None for fewer than two common items."""
    items = a.index.intersection(b.index)
    if len(items) < 2:
        return None
    x, y = a[items].to_numpy(), b[items].to_numpy()
    if task == "perplexity":
        d = x - y
        limits = [stats.t.interval(c, len(d) - 1, d.mean(), stats.sem(d)) for c in (0.95, 0.9)]
        return d.mean(), *limits[0], len(d), float(stats.ttest_rel(x, y).pvalue), *limits[1]
    right, other = x == 1, y == 1
    only, disagree = int((right & ~other).sum()), int((right != other).sum())
    p = float(stats.binomtest(only, disagree).pvalue) if disagree else 1.0
    return right.mean() - other.mean(), *newcombe(right, other, 0.95), len(x), p, *newcombe(right, other, 0.9)


def comparisons(table: pd.DataFrame) -> pd.DataFrame:
    """The four families of the plan, with Holm's p-values and verdicts."""
    planned: list[tuple[str, str, str, str, int, str]] = []
    for task in MARGINS:
        for length in LENGTHS:
            planned += [(f"drope, {task}", task, "drope", method, length, "as_is") for method in METHODS]
            if task == "perplexity":
                how = "cut" if length > 8192 else "as_is"
                planned += [("control", task, row, "control", length, how) for row in ("drope", *METHODS)]
    planned.append(("temperature", "perplexity", "drope_temperature", "drope", 12288, "as_is"))
    lines = []
    for family, task, row, against, length, how in planned:
        found = compare(series(table, row, task, length), series(table, against, task, length, how), task)
        if found is not None:
            lines.append((family, row, f"{against}, cut" if how == "cut" else against, length, *found))
    result = pd.DataFrame(lines, columns=COLUMNS)
    result["margin"] = [MARGINS["niah_single" if "niah" in family else "perplexity"] for family in result.family]
    result["holm"] = result.groupby("family").p.transform(holm)
    result["verdict"] = [verdict(line) for line in result.itertuples()]
    return result


def holm(p: pd.Series) -> np.ndarray:
    """Adjusted p-values."""
    order = np.argsort(p.to_numpy(), kind="stable")
    scaled = p.to_numpy()[order] * np.arange(len(p), 0, -1)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(1, np.maximum.accumulate(scaled))
    return adjusted


def verdict(line: object) -> str:
    """Equivalent, better, worse or inconclusive."""
    c = line
    if -c.margin < c.low90 and c.high90 < c.margin:  # type: ignore[attr-defined]
        return "equivalent"
    if c.holm > LEVEL or c.low <= 0 <= c.high:  # type: ignore[attr-defined]
        return "inconclusive"
    return "better" if (c.difference < 0) != ("niah" in c.family) else "worse"  # type: ignore[attr-defined]


def cell(values: pd.Series, task: str) -> str:
    """A mean loss with half of its interval, or a share with its exact interval."""
    n = len(values)
    if n < 2:
        return ""
    if task == "perplexity":
        half = stats.t.ppf(0.975, n - 1) * stats.sem(values)
        return f"{values.mean():.4f} ± {half:.4f} (n {n})"
    right = int((values == 1).sum())
    limits = stats.binomtest(right, n).proportion_ci(0.95, method="exact")
    return f"{100 * right / n:.0f} [{100 * limits.low:.0f}, {100 * limits.high:.0f}] (n {n})"


def page(table: pd.DataFrame) -> Iterator[str]:
    """The lines of table.md."""
    head = "| row | " + " | ".join(f"{length:,}" for length in LENGTHS) + " |"
    for task, unit in (("perplexity", "nats a token"), ("niah_single", "% of prompts answered")):
        yield from (f"## {task}: {unit}", "", head, "| --- |" + " ---: |" * len(LENGTHS))
        for row in ROWS:
            for method in ("as_is", "cut"):
                cells = [cell(series(table, row, task, length, method), task) for length in LENGTHS]
                if any(cells):
                    yield f"| {row}{', cut' if method == 'cut' else ''} | " + " | ".join(cells) + " |"
        yield ""
    compared = comparisons(table)
    for family, lines in compared.groupby("family", sort=False):
        yield from (f"## Family: {family} ({len(lines)} comparisons)", "")
        yield "| row | against | tokens | difference | n | p (Holm) | verdict |"
        yield "| --- | --- | ---: | ---: | ---: | ---: | --- |"
        scale, digits = (100, 0) if "niah" in str(family) else (1, 4)
        for c in lines.itertuples():
            low, high = scale * c.low, scale * c.high
            yield (
                f"| {c.row} | {c.against} | {c.length:,} | {scale * c.difference:+.{digits}f} "
                f"[{low:+.{digits}f}, {high:+.{digits}f}] | {c.n} | {c.holm:.2g} | {c.verdict} |"
            )
        yield ""
    yield (
        "± and brackets: 95 % intervals over documents. Differences are paired by document; p-values are adjusted by "
        "Holm within a family. Margins: 0.02 nats a token, 10 points of prompts. See plan.md."
    )


def main(argv: Sequence[str]) -> None:
    """Print the table."""
    sys.stdout.write("\n".join(page(readings(Path(argv[0])))) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
