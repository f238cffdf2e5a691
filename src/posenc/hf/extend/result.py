"""The result of an extension: its measurements, the sentences that they support, and the live model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from torch import nn

from posenc.hf.extend.measure import Decoding, WindowLosses
from posenc.hf.extend.retrieval import Retrieval

NEAR = 0.05  # nats a token: the margin within which two losses count as equivalent


def is_improvement(
    before: Mapping[int, WindowLosses], after: Mapping[int, WindowLosses], original: int, length: int
) -> bool | None:
    """Whether the extended context has a lower loss than the last ``original`` tokens before; None: inconclusive."""
    if length not in after or original not in before:
        return None
    return {"gain": True, "loss": False}.get(kind_of(after[length].minus(before[original])))


def sentences(
    before: Mapping[int, WindowLosses],
    after: Mapping[int, WindowLosses],
    original: int,
    length: int,
    decoding: Decoding,
) -> list[str]:
    """One sentence for each measurement."""
    lines = []
    if length in before and length in after:
        gain = after[length].minus(before[length])
        lines.append(
            f"At {length:,} tokens the loss went from {before[length].mean:.4f} to {after[length].mean:.4f} nats a "
            f"token ({gain.text(signed=True)}): {_WORDS[kind_of(gain)]}."
        )
    if length in after and original in before:
        lines.append(_worth_of_context(after[length].minus(before[original]), original))
    for short in sorted(n for n in after if n <= original and n in before):
        cost = after[short].minus(before[short])
        lines.append(f"Prompts of {short:,} tokens: {cost.text(signed=True)} nats, {_WORDS[kind_of(cost)]}.")
    if {original, length} <= after.keys() and original in before:
        lines.extend(
            _gain_of_training(after[original].minus(before[original]), after[length].minus(after[original]), original)
        )
    if any(losses.half_interval is None for losses in after.values()):
        lines.append("One window gives no confidence interval, so nothing is shown. Measure more (--windows).")
    else:
        count = len(next(iter(after.values())).windows) if after else 0
        lines.append(f"Intervals are 95 % over {count} windows of one text, and hold for that text alone.")
    return [*lines, decoding.sentence()]


Kind = Literal["loss", "gain", "equivalent", "inconclusive", "one window"]
_WORDS: dict[Kind, str] = {
    "loss": "worse than before the extension",
    "gain": "better than before the extension",
    "equivalent": f"equivalent within ±{NEAR}",
    "inconclusive": "inconclusive: the interval contains 0; more windows would narrow it",
    "one window": "of one window, which shows nothing",
}


def kind_of(cost: WindowLosses) -> Kind:
    """What a difference of losses shows, by its interval; positive is a loss."""
    if cost.half_interval is None:
        return "one window"
    low, high = cost.mean - cost.half_interval, cost.mean + cost.half_interval
    if low >= -NEAR and high <= NEAR:
        return "equivalent"
    if low > 0:
        return "loss"
    return "gain" if high < 0 else "inconclusive"


def _gain_of_training(short: WindowLosses, longer: WindowLosses, original: int) -> list[str]:
    """The gain of the longer context alone, where the model has also become better at short ones, as by training."""
    if short.half_interval is None or short.mean + short.half_interval >= -NEAR:
        return []
    gain = f"{longer.text(signed=True)} nats against its last {original:,} tokens alone"
    better = f"The model has become better at {original:,} tokens too ({short.text(signed=True)} nats)"
    words: dict[Kind, str] = {
        "gain": "so the longer context itself helps",
        "loss": "so the longer context itself hurts",
        "equivalent": f"so the longer context itself gives nothing within ±{NEAR}",
        "inconclusive": "inconclusive whether the longer context itself helps",
        "one window": "of one window, which shows nothing",
    }
    return [f"{better}; the extended model has {gain}: {words[kind_of(longer)]}."]


def choice_sentence(choices: Mapping[str, tuple[float, ...]]) -> str:
    """How the temperature that was chosen compares with the next one, on the texts that it was chosen by."""
    losses = {name: WindowLosses(tuple(values)) for name, values in choices.items()}
    ordered = sorted(losses, key=lambda name: losses[name].mean)
    best, second = ordered[:2]
    difference = losses[best].minus(losses[second])
    words: dict[Kind, str] = {
        "gain": "lower",
        "loss": "higher",
        "equivalent": f"equivalent within ±{NEAR}",
        "inconclusive": "inconclusive; more texts would narrow it (--pieces)",
        "one window": "of one text, which shows nothing (--pieces)",
    }
    count = len(losses[best].windows)
    texts = "1 text" if count == 1 else f"{count} texts"
    return (
        f"{best} has the lowest mean loss of {len(ordered)} temperatures; against {second} "
        f"{difference.text(signed=True)} nats on {texts}: {words[kind_of(difference)]}."
    )


def _worth_of_context(gain: WindowLosses, original: int) -> str:
    numbers = f"{gain.text(signed=True)} nats against the model before with the last {original:,} tokens alone"
    words: dict[Kind, str] = {
        "gain": f"The longer context helps: {numbers}.",
        "loss": f"The longer context hurts: {numbers}. Truncating texts is better; fine-tuning may help.",
        "equivalent": f"Equivalent within ±{NEAR} nats: {numbers}. On this text the longer context gives nothing.",
        "inconclusive": f"Inconclusive whether the longer context helps: {numbers}. More windows would narrow it.",
        "one window": f"Not shown whether the longer context helps: {numbers}, of one window.",
    }
    return words[kind_of(gain)]


@dataclass(frozen=True)
class Extension:
    """What an extension did and what it is worth. Print it.

    Attributes:
        method: the method that was applied.
        original_length, length: training length and new context length, in tokens.
        before, after: losses in nats a token by context length, always of the same tokens.
        choices: of temperatures that were tried, the losses of each at ``length``, on other texts than the windows.
        decoding: decoding with a cache compared with one call, before and after.
        config: the keys of the text part on rotation and length; {} for remapped distances.
        folder: the folder that was written; None: none.
        model: the live, extended model.
        retrieval: facts found before and after, by the length of the prompts; {} where it was not measured.
        weights: how the folder has its weights where they were linked; "" where they were written.
    """

    method: str
    original_length: int
    length: int
    before: Mapping[int, WindowLosses]
    after: Mapping[int, WindowLosses]
    choices: Mapping[str, tuple[float, ...]]
    decoding: Decoding
    config: Mapping[str, Any]
    folder: str | None = None
    model: nn.Module | None = field(default=None, repr=False, compare=False)
    retrieval: Mapping[int, Retrieval] = field(default_factory=dict)
    weights: str = ""

    @property
    def is_improvement(self) -> bool | None:
        """Whether the longer context lowers the loss, against the model before at its length; None: inconclusive."""
        return is_improvement(self.before, self.after, self.original_length, self.length)

    def record(self) -> dict[str, Any]:
        """As plain data."""
        omitted = ("model", "folder", "before", "after", "retrieval")
        record = {key: value for key, value in vars(self).items() if key not in omitted}
        for name in ("before", "after"):
            record[name] = {str(n): asdict(losses) for n, losses in getattr(self, name).items()}
        record["choices"] = {name: list(losses) for name, losses in self.choices.items()}
        record["retrieval"] = {str(n): asdict(answers) for n, answers in self.retrieval.items()}
        return {**record, "decoding": asdict(self.decoding)}

    @classmethod
    def of_record(cls, record: Mapping[str, Any], folder: str) -> Extension:
        """The inverse of `record`, without the model."""
        before, after = (
            {int(n): WindowLosses(tuple(losses["windows"]), losses["seconds"]) for n, losses in record[name].items()}
            for name in ("before", "after")
        )
        retrieval = {
            int(n): Retrieval(tuple(answers["before"]), tuple(answers["after"]), answers["cut"])
            for n, answers in record.get("retrieval", {}).items()
        }
        choices = {  # one number each in records of posenc 0.1
            name: tuple(losses) if isinstance(losses, list) else (losses,) for name, losses in record["choices"].items()
        }
        return cls(
            record["method"], record["original_length"], record["length"], before, after, choices,
            Decoding(**record["decoding"]), record["config"], folder, retrieval=retrieval,
            weights=record.get("weights", ""),
        )  # fmt: skip

    def __str__(self) -> str:
        title = f"{self.method}: {self.original_length:,} to {self.length:,} tokens"
        lines = [title, f"{'context':>10}  {'before':>17}  {'after':>17}  {'difference':>18}  tokens/s"]
        for n in sorted({*self.before, *self.after}):
            before, after = self.before.get(n), self.after.get(n)
            texts = ["" if losses is None else losses.text() for losses in (before, after)]
            difference = after.minus(before).text(signed=True) if before is not None and after is not None else ""
            timed = after or before
            speed = f"{n / timed.seconds:,.0f}" if timed is not None and timed.seconds else ""
            lines.append(f"{n:>10,}  {texts[0]:>17}  {texts[1]:>17}  {difference:>18}  {speed:>8}")
        if self.choices:
            tried = (f"{name} {WindowLosses(losses).text()}" for name, losses in self.choices.items())
            lines += ["tried: " + ", ".join(tried), choice_sentence(self.choices)]
        lines += sentences(self.before, self.after, self.original_length, self.length, self.decoding)
        lines += [answers.sentence(n, self.original_length) for n, answers in sorted(self.retrieval.items())]
        if self.weights:
            lines.append(f"The weights are {self.weights}.")
        if self.folder is not None:
            lines.append(
                f"Written to {self.folder}; SERVING.md there has commands for vLLM, SGLang, llama.cpp and mlx-lm."
            )
        return "\n".join(lines)
