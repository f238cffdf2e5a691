"""Rules as data: a sentence, where it belongs, its evidence, and the needs that it answers.

    features(needs)            what conditions compare and sentences name
    matches(when, features)    whether all conditions hold
    Rule.sentence(features)    the sentence with its numbers

The decision page evaluates the same rules in a browser, so that nothing here may need more than comparisons and a text
with names in braces.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Literal

from posenc.hf.config.facts import ModelFacts
from posenc.hf.plan.plan import Refused, plan_or_refusal
from posenc.hf.serving.lines import Serving, serving_lines
from posenc.recommend.needs import ALGORITHMIC, KINDS, TASKS, Needs

Basis = Literal["practice", "measured here", "by definition", "engine table", "not known"]
SECTIONS = {  # in the order of the answer, with their labels
    "default": "Default",
    "note": "Note",
    "practice": "Practice",
    "engine": "Engine",
    "memory": "Memory",
    "costs": "Costs",
    "measured": "Measured",
    "instead": "Instead",
    "unknown": "Not known",
    "check": "Check",
}
Condition = bool | str | tuple[str, ...] | Mapping[str, float]
When = Mapping[str, Condition]
ENGINE_NAMES = {"any": "any engine", "transformers": "transformers", "vllm": "vLLM", "sglang": "SGLang",
                "llama.cpp": "llama.cpp", "mlx": "mlx-lm"}  # fmt: skip

SHAPE = "in the shape of Llama 3 8B (32 layers, 8 key/value heads of 128 channels)"  # of a cache without a config


@dataclass(frozen=True)
class Sentence:
    """One sentence of an answer.

    Attributes:
        section: a key of `SECTIONS`.
        text: the sentence, or two.
        basis: what kind of evidence it has.
        sources: keys of `SOURCES` for practice; pages of this documentation for everything else.
    """

    section: str
    text: str
    basis: Basis
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Rule:
    """A sentence with the needs that it answers.

    Attributes:
        section, text, basis, sources: of the sentence; the text may name features in braces, such as {length}.
        when: by feature, the value or values that it must have, or bounds: {"above": 1, "upto": 4}.
    """

    section: str
    text: str
    basis: Basis
    sources: tuple[str, ...]
    when: When

    def sentence(self, values: Mapping[str, Any]) -> Sentence:
        """The sentence for one set of needs."""
        return Sentence(self.section, self.text.format_map(words(values)), self.basis, self.sources)


@dataclass(frozen=True)
class Answer:
    """What to do, in the order of `SECTIONS`: the default first.

    Attributes:
        question: the needs in one line.
        sentences: the answer.
        plan: of a configuration that was given, the record of its plan or refusal; None without one.
    """

    question: str
    sentences: tuple[Sentence, ...]
    plan: Mapping[str, Any] | None = None

    @property
    def default(self) -> str:
        """The first sentence."""
        return self.sentences[0].text


def features(needs: Needs) -> dict[str, Any]:
    """What conditions compare and texts name."""
    known, cache, fitting = needs.checkpoint, needs.cache_gib, needs.fitting
    over = needs.memory is not None and cache is not None and cache > needs.memory
    return {
        "model": needs.model, "kind": needs.kind, "task": needs.task, "engine": needs.engine, "tune": needs.tune,
        "train_length": needs.train_length, "length": needs.length, "ratio": needs.ratio,
        "algorithmic": needs.task in ALGORITHMIC or needs.kind == "algorithmic",
        "budget": "none" if needs.memory is None else "unknown" if cache is None else "over" if over else "fits",
        "memory": needs.memory, "cache": cache, "fitting": fitting,
        "kept": needs.train_length if fitting is None else min(fitting, needs.train_length),
        "given": known is not None, "weights": shlex.quote(known.weights) if known else "MODEL",
        "name": known.name if known else "", "windowed": known.windowed if known else "No",
        "window": known.window if known else None,
        "tuning": _budget_of(needs.tune_tokens), "tune_tokens": needs.tune_tokens,
        "tune_texts": None if needs.tune_tokens is None else needs.tune_tokens // needs.length,
        "slowest": None if known is None or known.slowest is None else round(known.slowest),
        "turns": known is not None and known.slowest is not None and known.slowest < needs.length,
        "declares": known is not None and known.declared is not None,
        "declared": known.declared if known and known.declared is not None else needs.train_length,
        **_plan_features(needs),
    }  # fmt: skip


def _budget_of(tokens: int | None) -> str:
    """How far a budget of fine-tuning reaches; "none": none was given."""
    return "none" if tokens is None else "small" if tokens < 10**9 else "billions" if tokens < 10**10 else "large"


def _plan_features(needs: Needs) -> dict[str, Any]:
    """What the plan of a configuration says: "unknown" without one, "reached", "refused" or "extend"."""
    known = needs.checkpoint
    none = {"planned": "", "command": "", "documented": False, "notes": "", "noted": False, "engine_line": ""}
    if known is None:
        return {**none, "plan": "unknown", "record": None}
    config = known.config
    plan = None if needs.length <= needs.train_length else plan_or_refusal(config.facts, needs.length)
    if isinstance(plan, Refused):
        planned = f"{plan.reason}. {plan.next_step}"
        return {**none, "plan": "refused", "planned": planned, "record": plan.record()}
    if plan is None or plan.after is None:
        record = {"method": None, "factor": None, "original_length": None, "documented": None}
        line = engine_line(config.facts, needs, known.path)
        return {**none, "plan": "reached", "engine_line": line, "record": record}
    return {
        "plan": "extend", "planned": plan.title, "command": plan.command(known.path),
        "documented": plan.documented is not None, "notes": "; ".join(plan.notes), "noted": bool(plan.notes),
        "engine_line": engine_line(plan.after, needs, "DIR"), "record": plan.record(),
    }  # fmt: skip


def engine_line(facts: ModelFacts, needs: Needs, folder: str) -> str:
    """The line of the engine that is to serve a configuration; "" where none is named, or nothing rotates."""
    if needs.engine == "any" or not any(facts.rotations.values()):
        return ""
    lines = serving_lines(Serving(facts, needs.length, folder))
    return next((str(line) for line in lines if line.engine.startswith(needs.engine)), "")


def words(values: Mapping[str, Any]) -> dict[str, str]:
    """Features as sentences show them: 131,072 tokens, a factor of 4, 1.5 GiB."""
    shown = {name: f"{value:,}" if type(value) is int else str(value) for name, value in values.items()}
    shown["factor"] = significant(values["ratio"], 4)
    for name in ("cache", "memory"):
        shown[name] = "" if values[name] is None else significant(values[name], 3)
    for name in ("length", "train_length"):  # for commands
        shown[f"{name}_digits"] = str(values[name])
    what = KINDS[values["kind"]]
    shown["what"], shown["a_what"] = what, f"{'an' if what[0] in 'aeiou' else 'a'} {what}"
    shown["goal"] = TASKS[values["task"]]
    shown["server"] = ENGINE_NAMES[values["engine"]]
    shown["shape"] = "here" if values["given"] else SHAPE
    return shown


def significant(value: float, digits: int) -> str:
    """A number rounded to so many significant digits, without an exponent.

    >>> significant(1.33333, 4), significant(16.0, 4), significant(12345.6, 4)
    ('1.333', '16', '12350')
    """
    exact = Decimal(value)
    place = Decimal(1).scaleb(exact.adjusted() - digits + 1)
    return f"{exact.quantize(place, ROUND_HALF_UP).normalize():f}"  # as toPrecision of JavaScript, which rounds ties up


def matches(when: When, values: Mapping[str, Any]) -> bool:
    """Whether all conditions hold."""
    return all(_holds(condition, values[name]) for name, condition in when.items())


def _holds(condition: Condition, value: Any) -> bool:
    if isinstance(condition, Mapping):
        return value is not None and condition.get("above", float("-inf")) < value <= condition.get(
            "upto", float("inf")
        )
    return value in condition if isinstance(condition, tuple) else bool(value == condition)
