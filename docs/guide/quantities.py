"""What a page may cite: every quantity of a recorded run and of the benchmarks, by name.

``numbers.toml`` cites them (`guide.numbers`), and tables in Markdown that are made of them. Shares come in per cent, as
pages write them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, cached_property
from typing import Any

import pandas as pd

from guide.records import RESULTS, ROOT, records_frame, run_of
from posenc.catalogue import CATALOGUE
from posenc.evaluation import statistics
from posenc.evaluation.report import PERPLEXITY
from posenc.hf.serving.table import CONVERTER, MLX, SGLANG, VLLM, engine_result, engine_table, newest
from posenc.lab.metrics import FULL, WINDOW
from posenc.lab.report.numbers import Key, Row, measured, values_of
from posenc.lab.stats import mean_interval, paired

ENGINES = (
    VLLM, SGLANG, CONVERTER, MLX, "litgpt", "torchtitan", "torchtune", "unsloth", "exllamav3", "lmdeploy",
)  # fmt: skip
UNDER = " under "  # between the name of a row and its view, as in "rope under its window"
ITS_WINDOW = "its window"
NONE = "–"  # where nothing was measured


class Estimate(float):
    """A mean or a difference of means, with half of its 95 % interval."""

    half: float

    def __new__(cls, mean: float, low: float, high: float, scale: float = 1) -> Estimate:
        """From a mean and its interval."""
        estimate = super().__new__(cls, scale * mean)
        estimate.half = scale * (high - low) / 2
        return estimate


class Recorded:
    """The numbers of one recorded run.

    A row is an encoding or a list of them, by its name in the run, seen with full attention unless a view is named:
    "rope under its window", "liere under finer_scaled". Lengths are multiples of the training length.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    @property
    def rows(self) -> list[str]:
        """Rows with full attention: those that learned the task first, the best at the longest length first."""
        return [row.spec for row in records_frame(self.name).rows if row.view == FULL]

    @property
    def longest(self) -> float:
        """The longest test in training lengths."""
        return records_frame(self.name).times

    def mean(self, row: str, times: float = 1, metric: str = "") -> Estimate:
        """The mean at so many training lengths; of the metric that decides unless another is named."""
        values = self._values(metric)[_key(row)][self._length(row, times)].to_numpy()
        if values.size == 1:
            return Estimate(float(values.mean()), float("nan"), float("nan"), self.scale)
        interval = mean_interval(values)
        return Estimate(interval.mean, interval.low, interval.high, self.scale)

    @property
    def ngram(self) -> float:
        """Of a language run: the mean of the best n-gram of the training text on the same targets."""
        counting = records_frame(self.name).baselines
        if counting is None:
            raise ValueError(f"{self.name} has no n-gram")
        return counting.ngram.mean

    @property
    def hours(self) -> float:
        """Hours of its trainings and tests, one after the other."""
        records = run_of(self.name).records
        return float(records[records["metric"] == "seconds"]["value"].sum()) / 3600

    def has(self, row: str, times: float) -> bool:
        """Whether a row was measured at a length."""
        values = self._values("").get(_key(row))
        return values is not None and self._length(row, times) in values

    def difference(self, row: str, baseline: str, times: float | None = None, of: Recorded | None = None) -> Estimate:
        """A row less another, also of another run, paired by seed and document; by default at the longest length."""
        times = self.longest if times is None else times
        row_values, baseline_values = (
            run._values("")[_key(name)][run._length(name, times)] for run, name in ((self, row), (of or self, baseline))
        )
        a, b = row_values.align(baseline_values, join="inner")
        contrast = paired(a.to_numpy(), b.to_numpy())
        return Estimate(contrast.mean, contrast.low, contrast.high, self.scale)

    def gap(self, row: str, times: float, baseline: str, baseline_times: float) -> Estimate:
        """A row at one length less a row at another one, paired by seed and document, of all seeds."""
        values = self._values("")
        a, b = (values[_key(n)][self._length(n, k)] for n, k in ((row, times), (baseline, baseline_times)))
        a, b = a.align(b, join="inner")
        contrast = paired(a.to_numpy(), b.to_numpy())
        return Estimate(contrast.mean, contrast.low, contrast.high, self.scale)

    def change(self, row: str) -> Estimate:
        """The longest length, or another view, less the training length: paired, of the seeds that learned the task."""
        change = self._row(row).change
        if change is None:
            raise ValueError(f"{row} has no change over length in {self.name}")
        return Estimate(change.mean, change.low, change.high, self.scale)

    def stable(self, row: str) -> bool:
        """Whether a row is at least as good at the longest length, or under its view, as at the training length."""
        return self._row(row).verdict.stable

    def ranked(self, times: float = 1) -> list[str]:
        """Rows that were measured at a length, the best mean first."""
        rows = [name for name in self.rows if self.has(name, times)]
        sign = 1 if run_of(self.name).decides.better == "lower" else -1
        return sorted(rows, key=lambda name: sign * self.mean(name, times))

    def learned(self, row: str) -> bool:
        """Whether half of a row's trainings or more learned the task."""
        return self._row(row).learned

    def seeds(self, row: str) -> int:
        """Trainings of a row."""
        return self._row(row).learned_share.seeds

    def learners(self, row: str) -> int:
        """Trainings of a row that learned the task; of a language model, that are better than the n-gram of its run."""
        of_language = self._row(row).ngram_share
        return (of_language or self._row(row).learned_share).count

    def training(self, row: str, fact: str) -> float:
        """A fact of the trainings of a row, such as ``parameters``: the mean over seeds."""
        return self._row(row).training[fact]

    def setting(self, name: str) -> float:
        """A number of the configuration, such as ``steps``."""
        return float(run_of(self.name).numbers[name])

    @property
    def documents(self) -> int:
        """Documents that tests come from."""
        row = self.rows[0]
        return int(self._values("")[_key(row)][self._length(row, 1)].shape[1])

    def same(self, row: str, other: str) -> bool:
        """Whether two rows have the same value for every seed and document of their only length."""
        first, second = (self._values("")[_key(name)][self._length(name, 1)] for name in (row, other))
        return bool(first.equals(second))

    @property
    def scale(self) -> int:
        """100 where the deciding metric is a share."""
        return 100 if run_of(self.name).decides.percent else 1

    def _row(self, name: str) -> Row:
        row = records_frame(self.name).row(*_key(name))
        if row is None:
            raise ValueError(f"{self.name} has no row {name!r}")
        return row

    def _length(self, row: str, times: float) -> int:
        view = _key(row)[1]
        return round(times * run_of(self.name).trained) if view in (FULL, WINDOW) else max(self._values("")[_key(row)])

    def _values(self, metric: str) -> dict[Key, dict[int, pd.DataFrame]]:
        if not metric:
            return self._deciding
        records = run_of(self.name).records
        return values_of(records[(records["metric"] == metric) & (records["length"] > 0)])

    @cached_property
    def _deciding(self) -> dict[Key, dict[int, pd.DataFrame]]:
        return measured(run_of(self.name)).values


@cache
def recorded(name: str) -> Recorded:
    """A recorded run by the name of its folder."""
    return Recorded(name)


class ContextStudy:
    """A part of the study of context extension (docs/results/context-study), such as "likelihood"."""

    def __init__(self, part: str) -> None:
        self.part = part
        self.readings: dict[tuple[str, str, int], dict[str, float]] = {}  # method, task, length: value by item
        for file in sorted((RESULTS / "context-study" / part).glob("readings*.jsonl")):
            for line in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
                _, *key = line["key"].split(" | ")
                if key:  # otherwise a session
                    name, task, length, *item = key
                    values = self.readings.setdefault((name.split(" ")[0], task, int(length)), {})
                    values[" | ".join(item)] = line["value"]["value"]

    def mean(self, method: str, length: int, task: str = PERPLEXITY) -> Estimate:
        """Nats a token, or the per cent of prompts that were answered completely."""
        values = list(self._values(method, length, task).values())
        if task == PERPLEXITY:
            interval = statistics.mean_interval(values)
            return Estimate(interval.mean, interval.low, interval.high)
        interval = statistics.share_interval(sum(v == 1 for v in values), len(values))
        return Estimate(interval.mean, interval.low, interval.high, 100)

    def difference(self, method: str, control: str, length: int, task: str = PERPLEXITY) -> Estimate:
        """A method less another on what both have read: nats a token, or points."""
        a, b = self._values(method, length, task), self._values(control, length, task)
        pairs = [(a[item], b[item]) for item in a if item in b]
        if task == PERPLEXITY:
            difference = statistics.paired_means(*zip(*pairs, strict=True))
            return Estimate(difference.mean, difference.low, difference.high)
        difference = statistics.paired_shares(*zip(*((x == 1, y == 1) for x, y in pairs), strict=True))
        return Estimate(difference.mean, difference.low, difference.high, 100)

    def documents(self, method: str, length: int, task: str = PERPLEXITY) -> int:
        """Documents, or prompts, that a method read."""
        return len(self._values(method, length, task))

    def _values(self, method: str, length: int, task: str) -> dict[str, float]:
        if (method, task, length) not in self.readings:
            raise ValueError(f"{self.part} has no {method!r} at {length} tokens")
        return self.readings[method, task, length]


def context_study(part: str) -> ContextStudy:
    """A part of the study of context extension."""
    return ContextStudy(part)


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


def _key(row: str) -> Key:
    """The name and the view of a row."""
    name, _, view = row.partition(UNDER)
    return name, WINDOW if view == ITS_WINDOW else view or FULL


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
    for row, spellings in engine_table()["engines"][engine][newest(engine)]["rows"].items():
        for spelling, entries in spellings.items():
            tested = [model for entry in entries for model in entry["models"]]
            result = engine_result(engine, row, spelling, "llama" if "llama" in tested else tested[0])
            if result.wrong and result.gap is not None:
                return True
    return False


def by_view(run: Recorded, views: Mapping[str, str]) -> str:
    """Images: per cent recognised as trained and under each view, with half of the 95 % interval.

    Bold where a row is as good under the view as without it or better; in brackets where it did not learn the task.
    """
    lines = []
    for row in run.ranked():
        learned = run.learned(row)
        cells = [_image(run, row, "{}" if learned else "({})")]
        for name in (f"{row}{UNDER}{view}" for view in views.values()):
            stable = run.has(name, 1) and learned and run.stable(name)
            cells.append(_image(run, name, "**{}**" if stable else "{}") if run.has(name, 1) else NONE)
        lines.append([row, *cells])
    return table(["encoding", "trained", *views], lines)


def _image(run: Recorded, row: str, mark: str) -> str:
    mean = run.mean(row)
    return mark.format(f"{mean:.0f} ± {mean.half:.0f}")


def table(heads: Collection[str], lines: Collection[Collection[str]]) -> str:
    """A table in Markdown with numbers on the right."""
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *lines))


QUANTITIES: Sequence[Callable[..., Any]] = (
    recorded, context_study, benchmark, encodings, engines_tried, engines_off, by_view,
)  # fmt: skip
