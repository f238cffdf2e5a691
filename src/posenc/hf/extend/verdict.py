"""What the numbers of an extension say, in sentences."""

from __future__ import annotations

from collections.abc import Mapping

from posenc.hf.extend.measured import Measured

NEAR = 0.05  # nats: what is no loss to speak of on short texts
EXACT = 1e-3  # of the largest logit: decoding one by one and in one call agree


def worth(before: Mapping[int, Measured], after: Mapping[int, Measured], original: int, length: int) -> bool | None:
    """Whether the whole text is read better than its last ``original`` tokens were; None: not known."""
    if length not in after or original not in before:
        return None
    gain = after[length].minus(before[original])
    if gain.half is None:
        return gain.mean < 0
    return None if abs(gain.mean) <= gain.half else gain.mean < 0


def sentences(
    before: Mapping[int, Measured], after: Mapping[int, Measured], original: int, length: int, gap: tuple[int, float]
) -> list[str]:
    """One for each thing that was measured."""
    found = []
    if length in before and length in after:
        gain = after[length].minus(before[length])
        found.append(f"At {length:,} tokens the loss went from {before[length].mean:.4f} to {after[length].mean:.4f} "
                     f"nats a token ({gain.text(signed=True)}).")  # fmt: skip
    if length in after and original in before:
        found.append(_on_worth(after[length].minus(before[original]), original, length))
    for short in sorted(n for n in after if n <= original and n in before):
        cost = after[short].minus(before[short])
        found.append(f"Texts of {short:,} tokens: {cost.text(signed=True)} nats, {_weighed(cost.mean)}.")
    if {original, length} <= after.keys() and original in before:
        found.extend(
            _of_training(after[original].minus(before[original]), after[length].minus(after[original]), original)
        )
    if any(one.half is None for one in after.values()):
        found.append("One window has no interval: this is an indication. Measure more.")
    at, apart = gap
    found.append(
        f"Decoding equals one call at {at:,} tokens (within {apart:.1e} of the largest logit)."
        if apart <= EXACT
        else f"Decoding does not equal one call at {at:,} tokens: logits are {apart:.1e} of the largest apart, since "
        "keys in a cache were turned by frequencies that the longer text changes."
    )
    return found


def _weighed(cost: float) -> str:
    if cost > NEAR:
        return "which prompts of that length pay for nothing"
    return "nothing to speak of" if cost >= -NEAR else "which they gain"


def _of_training(short: Measured, longer: Measured, original: int) -> list[str]:
    """What the longer text gives, where the model has become better at short ones too, as by a training."""
    if short.mean >= -NEAR:
        return []
    told = f"{longer.text(signed=True)} nats against its last {original:,} tokens alone"
    return [f"The model as it is now has become better at both: the longer text gives it {told}."]


def _on_worth(gain: Measured, original: int, length: int) -> str:
    told = f"{gain.text(signed=True)} nats against the model as it was, given the last {original:,} tokens alone"
    if gain.half is not None and abs(gain.mean) <= gain.half:
        return f"No difference shown: {told}. Cutting texts there costs nothing, and is cheaper."
    if gain.mean < 0:
        return f"Worth having: {told}."
    return f"Not worth having as it is: {told}. Cutting texts there reads better; a short training may change that."
