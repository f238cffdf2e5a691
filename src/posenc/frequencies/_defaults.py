"""Options of scalings that follow from the words that describe a model, for their entries in the catalogue."""

from __future__ import annotations

from posenc.entry import Shape
from posenc.frequencies.host import first_incomplete_pair
from posenc.frequencies.longrope import below_critical
from posenc.frequencies.riflex import identify_k

NO_SHIFT = "the spectrum spans the last position + 1, so a shift extends it"  # why an entry is exempt from that check


def factor(shape: Shape) -> dict[str, object]:
    """The factor of context extension: max_length / train_length."""
    train_length, max_length = shape.get("train_length"), shape.get("max_length")
    if isinstance(train_length, int) and isinstance(max_length, int):
        return {"factor": max(1.0, max_length / train_length)}
    return {}


def factors_of_the_search(shape: Shape) -> dict[str, object]:
    """LongRoPE's factors before any search: none up to the training length, the NTK seed of the search past it."""
    options = factor(shape)
    pairs, longer = pairs_of(shape), options.get("factor")
    if pairs is None or not isinstance(longer, float):
        return options
    seed = [longer ** (j / max(1, pairs - 1)) for j in range(pairs)]
    return {**options, "short": [1.0] * pairs, "long": seed, "factors": seed}


def factors_of_the_theory(shape: Shape) -> dict[str, object]:
    """LongRoPE2's factors before any search: the factor from the theoretical critical pair on, the NTK rule below."""
    options, pairs, train_length = factor(shape), pairs_of(shape), shape.get("train_length")
    longer, base = options.get("factor"), shape.get("base", 10_000.0)
    if pairs is None or not isinstance(longer, float) or not isinstance(train_length, int):
        return options
    pair = first_incomplete_pair(pairs, base if isinstance(base, int | float) else 10_000.0, train_length)
    critical = min(max(pair, 0), pairs - 1)
    long = [*below_critical(longer, critical), *[longer] * (pairs - critical)]
    return {**options, "short": [1.0] * pairs, "long": long, "gain": 1.0}


def pairs_of(shape: Shape) -> int | None:
    """The number of rotated pairs."""
    width = shape.get("rotary_dim", shape.get("head_dim"))
    return width // 2 if isinstance(width, int) else None


def pair_that_repeats(shape: Shape) -> dict[str, object]:
    """The pair that RIFLEx slows down, whose period is nearest to the training length, and the longest length."""
    pairs, train_length, max_length = pairs_of(shape), shape.get("train_length"), shape.get("max_length")
    if pairs is None or not isinstance(train_length, int) or not isinstance(max_length, int):
        return {}
    base = shape.get("base", 10_000.0)
    k, _ = identify_k(2 * pairs, base if isinstance(base, int | float) else 10_000.0, train_length)
    return {"k": k, "length": max_length}


def length_of_the_axis(shape: Shape) -> dict[str, object]:
    """The length that DyPE is made for: the longest."""
    max_length = shape.get("max_length")
    return {"length": max_length} if isinstance(max_length, int) else {}


def a_quarter(shape: Shape) -> dict[str, object]:
    """The share of rotated pairs in Gemma's layers."""
    return {"fraction": 0.25}
