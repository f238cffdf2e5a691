"""Tables and verdicts from an evaluation's readings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from posenc.evaluation.retrieval import KINDS
from posenc.evaluation.statistics import (
    Comparison,
    Interval,
    Verdict,
    holm,
    mean_interval,
    paired_means,
    paired_shares,
    share_interval,
    verdict,
)

PERPLEXITY = "perplexity"
TASKS = (PERPLEXITY, *KINDS)
AS_IS, CUT, CHUNKED = "as_is", "cut", "chunked"
MARGINS: dict[str, float] = {PERPLEXITY: 0.02} | dict.fromkeys(KINDS, 0.1)
"""Differences within ± margin do not matter: 0.02 nats a token, 10 percentage points of prompts answered."""


@dataclass(frozen=True)
class Reading:
    """One measurement: a document or a prompt, as one method reads it.

    Attributes:
        method, task, length: what was read, and how; length in tokens, those of an answer included.
        item: number of the document, and of the prompt that is built from it.
        value: nats a token on the scored tokens; or the share of the expected strings in the answer.
        seconds: that it took.
        details: depth, answer and expected strings of a prompt; the session that measured it.
    """

    method: str
    task: str
    length: int
    item: int
    value: float
    seconds: float
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Contrast:
    """A method against the control, at one length, on the items that both have read."""

    task: str
    length: int
    method: str
    control: str
    difference: Comparison
    adjusted_p: float
    verdict: Verdict


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation measured.

    Attributes:
        settings: plain data: the model, its trained length, versions, machine, documents.
        readings: in the order of measurement.
    """

    settings: Mapping[str, Any]
    readings: tuple[Reading, ...]

    def values(self, task: str, length: int, method: str) -> dict[int, float]:
        """Values by item."""
        return {
            reading.item: reading.value
            for reading in self.readings
            if (reading.task, reading.length, reading.method) == (task, length, method)
        }

    def interval(self, task: str, length: int, method: str) -> Interval | None:
        """The mean loss, or the share of prompts that were answered completely, with its 95 % interval; None where
        fewer than two items were read."""
        values = list(self.values(task, length, method).values())
        if len(values) < 2:
            return None
        return mean_interval(values) if task == PERPLEXITY else share_interval(sum(map(_complete, values)), len(values))

    def contrasts(self) -> list[Contrast]:
        """Every method against the control of its task, at each length beyond the trained one and at each shorter one
        that a changed model reads differently; p-values are adjusted together over all of them."""
        compared: list[tuple[str, int, str, str, Comparison, Interval]] = []
        for task in self._distinct("task"):
            methods = self._distinct("method", task=task)
            control = next((name for name in _controls(task) if name in methods), None)
            for length in self._distinct("length", task=task):
                for method in methods if control else ():
                    if method in (AS_IS, CUT, CHUNKED) and length <= self.settings["trained_length"]:
                        continue  # the same text in the same model as the control's: it would only weaken Holm
                    pair = self._pair(task, length, method, str(control))
                    if method != control and pair is not None:
                        compared.append((task, length, method, str(control), *pair))
        adjusted = holm([comparison.p for *_, comparison, _ in compared])
        return [
            Contrast(
                task, length, method, control, comparison, p,
                verdict(comparison, narrow, MARGINS[task], p, lower_is_better=task == PERPLEXITY),
            )
            for (task, length, method, control, comparison, narrow), p in zip(compared, adjusted, strict=True)
        ]  # fmt: skip

    def _pair(self, task: str, length: int, method: str, control: str) -> tuple[Comparison, Interval] | None:
        a, b = self.values(task, length, method), self.values(task, length, control)
        items = sorted(a.keys() & b.keys())
        if len(items) < 2:
            return None
        first, second = [a[item] for item in items], [b[item] for item in items]
        if task == PERPLEXITY:
            return paired_means(first, second), paired_means(first, second, confidence=0.9)
        answered = list(map(_complete, first)), list(map(_complete, second))
        return paired_shares(*answered), paired_shares(*answered, confidence=0.9)

    def _distinct(self, name: str, **where: Any) -> list[Any]:
        """Distinct values of a field, in the order of their first reading."""
        chosen = (r for r in self.readings if all(getattr(r, key) == value for key, value in where.items()))
        return list(dict.fromkeys(getattr(reading, name) for reading in chosen))

    def record(self) -> dict[str, Any]:
        """Plain data: settings, every reading, and the numbers of the table."""
        return {
            "format": 1,
            "settings": dict(self.settings),
            "contrasts": [
                {
                    "task": c.task, "length": c.length, "method": c.method, "control": c.control,
                    "difference": c.difference.mean, "low": c.difference.low, "high": c.difference.high,
                    "n": c.difference.n, "p": c.difference.p, "adjusted_p": c.adjusted_p, "verdict": c.verdict,
                }
                for c in self.contrasts()
            ],
            "readings": [
                {"method": r.method, "task": r.task, "length": r.length, "item": r.item, "value": r.value,
                 "seconds": r.seconds, **r.details}
                for r in self.readings
            ],
        }  # fmt: skip

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        contrasts = self.contrasts()
        yield f"# {self.settings['model']}, read at up to {max(self._distinct('length'), default=0):,} tokens"
        yield ""
        yield from _verdict_lines(contrasts, self.settings["trained_length"])
        for task in self._distinct("task"):
            yield from self._table(task, [c for c in contrasts if c.task == task])
        yield ""
        compared = (
            f" Differences are paired by document, and their p-values adjusted by Holm over all {len(contrasts)}. "
            "Equivalent: the 90 % interval lies within the margin (0.02 nats a token, 10 points of prompts)."
        )
        yield (
            f"Trained length: {self.settings['trained_length']:,} tokens. ± and brackets: 95 % intervals over "
            f"documents, which cover other documents of this kind, not other models.{compared if contrasts else ''}"
        )

    def _table(self, task: str, contrasts: Sequence[Contrast]) -> Iterator[str]:
        lengths, methods = sorted(self._distinct("length", task=task)), self._distinct("method", task=task)
        unit = "nats a token" if task == PERPLEXITY else "% of prompts answered completely"
        yield from ("", f"## {task}: {unit}", "")
        yield "| method | " + " | ".join(f"{length:,}" for length in lengths) + " |"
        yield "| --- |" + " ---: |" * len(lengths)
        for method in methods:
            cells = [
                _cell(task, list(self.values(task, length, method).values()), self.interval(task, length, method))
                for length in lengths
            ]
            yield f"| {method} | " + " | ".join(cells) + " |"
        if not contrasts:
            return
        yield from ("", f"| against {contrasts[0].control} | tokens | difference | n | p (Holm) | verdict |")
        yield "| --- | ---: | ---: | ---: | ---: | --- |"
        for c in contrasts:
            scale, digits = (1, 4) if task == PERPLEXITY else (100, 0)
            low, high = c.difference.low * scale, c.difference.high * scale
            yield (
                f"| {c.method} | {c.length:,} | {c.difference.mean * scale:+.{digits}f} "
                f"[{low:+.{digits}f}, {high:+.{digits}f}] | {c.difference.n} | {c.adjusted_p:.2g} | {c.verdict} |"
            )


def _controls(task: str) -> tuple[str, ...]:
    """What a task's methods are compared with, by preference: what costs no change of the model."""
    return (CUT, AS_IS) if task == PERPLEXITY else (CHUNKED, CUT, AS_IS)


def _complete(value: float) -> bool:
    return value == 1


def _cell(task: str, values: Sequence[float], interval: Interval | None) -> str:
    """A mean with its interval; one value without an interval."""
    if not values:
        return "–"
    if interval is None:
        return f"{values[0]:.4f} (n 1)" if task == PERPLEXITY else f"{sum(map(_complete, values))} of {len(values)}"
    if task == PERPLEXITY:
        return f"{interval.mean:.4f} ± {interval.half_width:.4f} (n {interval.n})"
    return f"{100 * interval.mean:.0f} [{100 * interval.low:.0f}, {100 * interval.high:.0f}] (n {interval.n})"


def _verdict_lines(contrasts: Sequence[Contrast], trained: int) -> Iterator[str]:
    """One sentence a task and length."""
    groups: dict[tuple[str, int, str], list[Contrast]] = {}
    for contrast in contrasts:
        groups.setdefault((contrast.task, contrast.length, contrast.control), []).append(contrast)
    if not groups:
        yield f"No comparison: beyond the trained {trained:,} tokens no task has results of two methods and documents."
    for (task, length, control), members in groups.items():
        kinds = []
        for kind in ("better", "equivalent", "worse", "inconclusive"):
            names = [c.method for c in members if c.verdict == kind]
            if names:
                kinds.append(f"{kind} {', '.join(names)}")
        yield f"**{task}, {length:,} tokens, against {control}: {'; '.join(kinds)}.**"
