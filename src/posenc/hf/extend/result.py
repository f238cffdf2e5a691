"""What an extension gives: its numbers, the sentences they support, and the live model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from torch import nn

from posenc.hf.extend.measure import Decoding, Measured

NEAR = 0.05  # nats a token: the margin within which two losses count as equivalent


def is_improvement(
    before: Mapping[int, Measured], after: Mapping[int, Measured], original: int, length: int
) -> bool | None:
    """Whether the whole text is read better than its last ``original`` tokens were; None: not shown."""
    if length not in after or original not in before:
        return None
    return {"gain": True, "loss": False}.get(kind_of(after[length].minus(before[original])))


def sentences(
    before: Mapping[int, Measured], after: Mapping[int, Measured], original: int, length: int, decoding: Decoding
) -> list[str]:
    """One for each thing that was measured."""
    lines = []
    if length in before and length in after:
        gain = after[length].minus(before[length])
        lines.append(
            f"At {length:,} tokens the loss went from {before[length].mean:.4f} to {after[length].mean:.4f} nats a "
            "token "
            f"({gain.text(signed=True)}{_of_one(gain)})."
        )
    if length in after and original in before:
        lines.append(_on_worth(after[length].minus(before[original]), original))
    for short in sorted(n for n in after if n <= original and n in before):
        cost = after[short].minus(before[short])
        lines.append(f"Prompts of {short:,} tokens: {cost.text(signed=True)} nats, {_WORDS[kind_of(cost)]}.")
    if {original, length} <= after.keys() and original in before:
        lines.extend(
            _of_training(after[original].minus(before[original]), after[length].minus(after[original]), original)
        )
    if any(one.half is None for one in after.values()):
        lines.append("One window has no interval: nothing is shown by it. Measure more (--windows).")
    else:
        count = len(next(iter(after.values())).windows) if after else 0
        lines.append(f"Intervals are 95 % over {count} windows of one text, and speak of that text alone.")
    return [*lines, decoding.sentence()]


Kind = Literal["loss", "gain", "equivalent", "inconclusive", "one window"]
_WORDS: dict[Kind, str] = {
    "loss": "a loss that prompts of that length pay for the extension",
    "gain": "a gain",
    "equivalent": f"equivalent within ±{NEAR}",
    "inconclusive": "inconclusive: the interval reaches past both signs; more windows would narrow it",
    "one window": "of one window, which shows nothing",
}


def kind_of(cost: Measured) -> Kind:
    """What a difference of losses shows by its interval; positive is a loss."""
    if cost.half is None:
        return "one window"
    low, high = cost.mean - cost.half, cost.mean + cost.half
    if low >= -NEAR and high <= NEAR:
        return "equivalent"
    if low > 0:
        return "loss"
    return "gain" if high < 0 else "inconclusive"


def _of_one(gain: Measured) -> str:
    return "" if gain.half is not None else ", one window"


def _of_training(short: Measured, longer: Measured, original: int) -> list[str]:
    """What the longer text gives, where the model has become better at short ones too, as by a training."""
    if short.half is None or short.mean + short.half >= -NEAR:
        return []
    told = f"{longer.text(signed=True)} nats against its last {original:,} tokens alone"
    return [f"The model as it is now has become better at both lengths: the longer context gives it {told}."]


def _on_worth(gain: Measured, original: int) -> str:
    told = f"{gain.text(signed=True)} nats against the model before, given the last {original:,} tokens alone"
    words: dict[Kind, str] = {
        "gain": f"The longer context helps: {told}.",
        "loss": f"The longer context hurts as it is: {told}. Cutting texts there reads better; fine-tuning may help.",
        "equivalent": f"Equivalent within ±{NEAR} nats: {told}. On this text the longer context gives nothing.",
        "inconclusive": f"Inconclusive whether the longer context helps: {told}. More windows would narrow it.",
        "one window": f"Not shown whether the longer context helps: {told}, of one window.",
    }
    return words[kind_of(gain)]


@dataclass(frozen=True)
class Extension:
    """What an extension did and what it is worth. Print it.

    Attributes:
        method: that was taken.
        original_length, length: tokens that the model was trained at, and that it is extended to.
        before, after: losses in nats a token by the tokens of context, always of the same tokens.
        choices: with the method "auto", the loss of each at ``length``, on other tokens.
        decoding: decoding with a cache compared with one call, before and after.
        config: the text part of the configuration says this of its rotation; {} for distances that are moved.
        folder: where it lies; None: nowhere.
        model: live, changed.
    """

    method: str
    original_length: int
    length: int
    before: Mapping[int, Measured]
    after: Mapping[int, Measured]
    choices: Mapping[str, float]
    decoding: Decoding
    config: Mapping[str, Any]
    folder: str | None = None
    model: nn.Module | None = field(default=None, repr=False, compare=False)

    @property
    def is_improvement(self) -> bool | None:
        """Whether the longer text is read better than its end was by the model before; None: no difference shown."""
        return is_improvement(self.before, self.after, self.original_length, self.length)

    def record(self) -> dict[str, Any]:
        """As plain data."""
        kept = {key: value for key, value in vars(self).items() if key not in ("model", "folder", "before", "after")}
        for name in ("before", "after"):
            kept[name] = {str(n): asdict(one) for n, one in getattr(self, name).items()}
        return {**kept, "decoding": asdict(self.decoding)}

    @classmethod
    def of_record(cls, record: Mapping[str, Any], folder: str) -> Extension:
        """The same again, without the model."""
        before, after = (
            {int(n): Measured(tuple(one["windows"]), one["seconds"]) for n, one in record[name].items()}
            for name in ("before", "after")
        )
        rest: dict[str, Any] = {
            key: record[key] for key in ("method", "original_length", "length", "choices", "config")
        }
        return cls(**rest, before=before, after=after, decoding=Decoding(**record["decoding"]), folder=folder)

    def __str__(self) -> str:
        title = f"{self.method}: {self.original_length:,} to {self.length:,} tokens"
        lines = [title, f"{'context':>10}  {'before':>17}  {'after':>17}  {'difference':>18}  tokens/s"]
        for n in sorted({*self.before, *self.after}):
            one, other = self.before.get(n), self.after.get(n)
            texts = ["" if each is None else each.text() for each in (one, other)]
            apart = other.minus(one).text(signed=True) if one is not None and other is not None else ""
            timed = other or one
            speed = f"{n / timed.seconds:,.0f}" if timed is not None and timed.seconds else ""
            lines.append(f"{n:>10,}  {texts[0]:>17}  {texts[1]:>17}  {apart:>18}  {speed:>8}")
        if self.choices:
            lines.append("tried: " + ", ".join(f"{name} {loss:.4f}" for name, loss in self.choices.items()))
        lines += sentences(self.before, self.after, self.original_length, self.length, self.decoding)
        if self.folder is not None:
            lines.append(f"Written to {self.folder}; SERVING.md there tells vLLM, SGLang and llama.cpp.")
        return "\n".join(lines)
