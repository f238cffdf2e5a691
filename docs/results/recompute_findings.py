"""Recompute every number of docs/findings.md from the records, with pandas, numpy and scipy alone.

    python docs/results/recompute_findings.py [--page FILE]

posenc is not imported: means, intervals and differences are implemented here a second time, from the description in
docs/compare.md, so that a mistake in posenc's own statistics would show. docs/guide/numbers.toml has the words before
each number, and the expression that gives it, in the order of the page. Each number is compared with what its
expression gives here, to the last digit that the page shows. Exit code 1 where one differs.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

RESULTS = Path(__file__).resolve().parent
PAGE = RESULTS.parent / "findings.md"
PLACES = tomllib.loads((RESULTS.parent / "guide" / "numbers.toml").read_text(encoding="utf-8"))
NUMBER = r"[+−]?\d+(?:,\d{3})*(?:\.\d+)?"
SHOWN = rf"(?:(?P<mean>{NUMBER})(?: ± (?P<half>{NUMBER}))?|(?P<word>[A-Za-z]+))"
Array = np.ndarray[Any, Any]
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


class Number(float):
    """A mean with half of its 95 % interval."""

    half: float = float("nan")


def errors(table: Array) -> list[tuple[float, float]]:
    """Standard errors of the mean of a table (seeds, documents), with their degrees of freedom.

    Both factors are random and crossed. There is one error over seeds, one over documents and, where the rest of the
    variance is smaller than either, one over both; what is said holds for the widest.
    """
    seeds, documents = table.shape
    mean = table.mean()
    by_seed, by_document = table.mean(1) - mean, table.mean(0) - mean
    rest = table - mean - by_seed[:, None] - by_document[None, :]
    factors = []
    if seeds > 1:
        factors.append((documents * (by_seed**2).sum() / (seeds - 1), seeds - 1))
    if documents > 1:
        factors.append((seeds * (by_document**2).sum() / (documents - 1), documents - 1))
    candidates = list(factors)
    if len(factors) == 2:
        error_freedom = (seeds - 1) * (documents - 1)
        error = (rest**2).sum() / error_freedom
        (of_seeds, s), (of_documents, d) = factors
        if error < min(of_seeds, of_documents):
            value = of_seeds + of_documents - error
            freedom = value**2 / (of_seeds**2 / s + of_documents**2 / d + error**2 / error_freedom)
            candidates.append((value, max(freedom, min(s, d))))
    return [(float(np.sqrt(value / table.size)), freedom) for value, freedom in candidates]


def half_interval(table: Array, confidence: float) -> float:
    """Half of the interval of the mean of a table (seeds, documents)."""
    return max(float(stats.t.ppf((1 + confidence) / 2, freedom) * error) for error, freedom in errors(table))


def p_value(table: Array) -> float:
    """Of no difference: that of the widest interval."""
    return max(float(2 * stats.t.sf(abs(table.mean()) / error, freedom)) for error, freedom in errors(table))


def holm(p: Array) -> Array:
    """p-values adjusted by Holm within their family."""
    order = np.argsort(p)
    steps = np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order])
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(steps, 1)
    return adjusted


def estimate(table: Array, scale: float) -> Number:
    """The mean of a table (seeds, documents) with half of its 95 % interval."""
    result = Number(scale * table.mean())
    if table.size > 1:
        result.half = scale * half_interval(table, 0.95)
    return result


class Run:
    """The records of one folder."""

    def __init__(self, folder: str) -> None:
        self.folder = RESULTS / folder
        self.about = json.loads((self.folder / "run.json").read_text(encoding="utf-8"))
        self.decides = self.about["metrics"][0]
        self.scale = 100 if self.decides.get("percent") else 1

    @cached_property
    def records(self) -> pd.DataFrame:
        """All records."""
        return pd.read_parquet(self.folder / "records.parquet")

    def table(self, row: str, times: float, metric: str = "") -> pd.DataFrame:
        """Values (seeds, documents): items of one document are averaged first."""
        spec, _, under = row.partition(" under ")
        view = {"": "full", "its window": "window"}.get(under, under)
        records = self.records
        length = round(times * self.about["numbers"]["train_length"])
        if view not in ("full", "window"):  # of pictures: a larger one has a length of its own
            length = records.loc[(records["view"] == view) & (records["spec"] == spec), "length"].max()
        chosen = records[
            (records["metric"] == (metric or self.decides["name"]))
            & (records["spec"] == spec)
            & (records["view"] == view)
            & (records["length"] == length)
        ]
        if chosen.empty:
            raise ValueError(f"{self.folder.name} has no {row!r} at {times} training lengths")
        wide = chosen.pivot_table(index="seed", columns="document", values="value", aggfunc="mean", observed=True)
        return wide.dropna(axis=1)

    def mean(self, row: str, times: float = 1, metric: str = "") -> Number:
        """The mean at so many training lengths."""
        return estimate(self.table(row, times, metric).to_numpy(), self.scale)

    def difference(self, row: str, baseline: str, times: float = 1) -> Number:
        """A row less another, paired by seed and document."""
        a, b = self.table(row, times).align(self.table(baseline, times), join="inner")
        return estimate((a - b).to_numpy(), self.scale)

    def gap(self, row: str, times: float, baseline: str, baseline_times: float) -> Number:
        """A row at one length less a row at another one, paired by seed and document."""
        a, b = self.table(row, times).align(self.table(baseline, baseline_times), join="inner")
        return estimate((a - b).to_numpy(), self.scale)

    def same(self, row: str, other: str) -> bool:
        """Whether two rows of pictures have the same value for every seed and document."""
        return bool(self.table(row, 1).equals(self.table(other, 1)))

    @property
    def ngram(self) -> Number:
        """Of a language run: the mean of the best n-gram of the training text on the same targets."""
        return self.mean("n-gram", 1, "ngram")

    def training(self, row: str, fact: str) -> float:
        """A fact of the trainings of a row, such as parameters: the mean over seeds."""
        chosen = self.records[(self.records["spec"] == row) & (self.records["metric"] == fact)]
        return float(chosen.groupby("seed", observed=True)["value"].mean().mean())

    def seeds(self, row: str) -> int:
        """Trainings of a row."""
        return len(self.table(row, 1))

    def learners(self, row: str) -> int:
        """Trainings of a row that learned: the task's share; of a language model, better than the n-gram of its run."""
        table = self.table(row, 1)
        if self.decides["unit"] != "bits per byte":
            return int((table.mean(axis=1) >= self.decides["learnt"]).sum())
        a, ngram = table.align(self.table("n-gram", 1, "ngram"), join="inner", axis=1)
        gaps = [estimate((line - ngram.iloc[0]).to_numpy()[None], 1) for _, line in a.iterrows()]
        return sum(gap + gap.half < 0 for gap in gaps)

    @property
    def documents(self) -> int:
        """Documents of the first row."""
        return int(self.table(str(self.records["spec"].iloc[0]), 1).shape[1])

    @property
    def hours(self) -> float:
        """Hours of its trainings and tests, one after the other."""
        return float(self.records[self.records["metric"] == "seconds"]["value"].sum()) / 3600

    def setting(self, name: str) -> float:
        """A number of the configuration."""
        return float(self.about["numbers"][name])


class Readings:
    """A part of the context study: its readings of documents, or of prompts built from them."""

    def __init__(self, part: str) -> None:
        self.part, rows = part, []
        for file in sorted((RESULTS / "context-study" / part).glob("readings*.jsonl")):
            for line in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
                key = line["key"].split(" | ")
                if len(key) == 6:
                    _, name, task, length, *item = key
                    rows.append((name.split(" ")[0], task, int(length), " | ".join(item), line["value"]["value"]))
        self.readings = pd.DataFrame(rows, columns=["method", "task", "length", "item", "value"])

    def values(self, method: str, length: int, task: str) -> pd.Series[float]:
        """Nats a token of each document, or the share of the expected strings in each answer."""
        r = self.readings
        chosen = r[(r["method"] == method) & (r["task"] == task) & (r["length"] == length)]
        if chosen.empty:
            raise ValueError(f"{self.part} has no {method!r} at {length} tokens")
        return chosen.drop_duplicates("item", keep="last").set_index("item")["value"]

    def mean(self, method: str, length: int, task: str = "perplexity") -> Number:
        """Nats a token with an interval over documents; of prompts, the per cent of complete answers, without one."""
        values = self.values(method, length, task)
        if task == "perplexity":
            return estimate(values.to_numpy()[None], 1)
        return Number(100 * (values == 1).mean())

    def difference(self, method: str, control: str, length: int, task: str = "perplexity") -> Number:
        """A method less another, paired by document or prompt; of prompts in points, without an interval."""
        a, b = self.values(method, length, task).align(self.values(control, length, task), join="inner")
        if task == "perplexity":
            return estimate((a - b).to_numpy()[None], 1)
        return Number(100 * ((a == 1).mean() - (b == 1).mean()))

    def documents(self, method: str, length: int, task: str = "perplexity") -> int:
        """Documents, or prompts, that a method read."""
        return len(self.values(method, length, task))


class Runs(dict[str, Any]):
    """Each folder under its name, with _ for -."""

    def __missing__(self, name: str) -> Run:
        return run(name.replace("_", "-"))


@cache
def run(folder: str) -> Run:
    """A folder's records, read once."""
    if not (RESULTS / folder / "run.json").exists():
        raise KeyError(folder)
    return Run(folder)


def differs(shown: str, value: float) -> bool:
    """Whether a shown number is not the value, rounded to its decimals."""
    text = shown.replace("−", "-").replace("+", "").replace(",", "")
    decimals = len(text.partition(".")[2])
    return abs(float(text) - value) > 0.5 * 10.0**-decimals * (1 + 1e-9)


def main() -> int:
    """Returns 1 where a number of the page is not that of the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, default=PAGE)
    page, wrong, compared = parser.parse_args().page.read_text(encoding="utf-8"), 0, 0
    names = Runs({"context_study": Readings, "round": round, "abs": abs, "min": min, "max": max, "__builtins__": {}})
    at = 0
    for before, expression in PLACES["docs/findings.md"]["numbers"]:
        match = re.compile(r"\s+".join(map(re.escape, before.split(" "))) + SHOWN).search(page, at)
        if match is None:
            sys.stdout.write(f"not on the page: {before}\n")
            wrong += 1
            continue
        at = match.end()
        value = eval(f"({expression})", {"__builtins__": {}}, names)
        shown = match.groupdict()
        if shown["word"]:
            pairs = [(shown["word"], value)]
            bad = WORDS[int(value)] != shown["word"].lower()
        else:
            pairs = [(shown["mean"], value), *([(shown["half"], value.half)] if shown["half"] else [])]
            bad = any(differs(text, number) for text, number in pairs)
        compared += len(pairs)
        if bad:
            wrong += 1
            line = page.count("\n", 0, match.start()) + 1
            sys.stdout.write(f"line {line}: {pairs}: {expression}\n")
    sys.stdout.write(f"{compared} numbers compared, {wrong} differ\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
