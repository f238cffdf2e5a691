"""Figures of the first ideas and of length: scaled integers, adding or concatenating, flattening, interpolation."""

from __future__ import annotations

import math

from posenc.figures.drawn import Curves, Stacked

TRAINED, FACTOR = 2048, 2  # tokens of training, times as many afterwards
FITS = 5.0  # the logit of a key that matches, where all others have 0
SHORT, LONG = 10, 40  # words of two texts


def scaled_integers() -> Curves:
    """Positions divided by the length of the text."""
    series = {f"{words} words": [(float(p), p / (words - 1)) for p in range(words)] for words in (SHORT, LONG)}
    return Curves(
        series,
        "token",
        "position / length",
        "two lines from 0 to 1: the one of the short text is four times as steep as the one of the long text",
        f"Positions divided by the length. One token ahead is {1 / (SHORT - 1):.2f} in a text of {SHORT} words and "
        f"{1 / (LONG - 1):.2f} in a text of {LONG}: the same step has no fixed size.",
    )


def adding() -> Stacked:
    """The channels of a token's vector, concatenated and added."""
    return Stacked(
        {
            "concatenated": [("content", 8.0), ("position", 4.0)],
            "added": [("content + position", 8.0)],
        },
        "channels",
        "a longer bar of two pieces, content and position, above a shorter bar that holds the sum of both",
        "Concatenating makes the vector wider, and with it every matrix that reads it. Adding keeps the width: both "
        "share the same channels.",
    )


def flattening() -> Curves:
    """The weight of one matching key among more and more keys."""
    counts = [16 * 2**k for k in range(11)]

    def weight(keys: int, factor: float) -> float:
        return 1 / (1 + (keys - 1) * math.exp(-FITS * factor))

    return Curves(
        {
            "softmax": [(float(n), weight(n, 1.0)) for n in counts],
            "logits × log n / log 16": [(float(n), weight(n, math.log(n) / math.log(counts[0]))) for n in counts],
        },
        "keys",
        "weight of the matching key",
        "one curve falls from near 1 to near 0 as keys are added; the other stays near 1",
        f"The attention weight of one key whose logit is {FITS:g} above all others. Plain softmax spreads over more "
        "and more keys; logits that grow like log n keep the weight.",
        log_x=True,
    )


def interpolation() -> Curves:
    """Positions of a text that is longer than those of training, as they are and scaled."""
    last = FACTOR * TRAINED
    tokens = [float(p) for p in range(0, last + 1, TRAINED // 4)]
    return Curves(
        {"extrapolation": [(p, p) for p in tokens], "interpolation": [(p, p / FACTOR) for p in tokens]},
        "token",
        "position given to the model",
        "two lines from the origin: one crosses the dashed level of the largest trained position, the other ends at it",
        f"A model trained on {TRAINED:,} tokens gets {last:,}. Extrapolation leaves the trained range; interpolation "
        "stays in it, with neighbours half a position apart.",
        levels={"largest trained position": float(TRAINED - 1)},
    )
