"""What the numbers of an extension say, in sentences; each honours its interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from posenc.hf.extend.decoding import Decoding
from posenc.hf.extend.measured import Measured

NEAR = 0.05  # nats a token: the margin within which two losses count as equivalent


def worth(before: Mapping[int, Measured], after: Mapping[int, Measured], original: int, length: int) -> bool | None:
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
