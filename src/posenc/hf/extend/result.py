"""What an extension gives: numbers, sentences, the live model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import nn

from posenc.hf.extend.decoding import Decoding
from posenc.hf.extend.measured import Measured
from posenc.hf.extend.verdict import sentences, worth


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
    def worth(self) -> bool | None:
        """Whether the longer text is read better than its end was by the model before; None: no difference shown."""
        return worth(self.before, self.after, self.original_length, self.length)

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
