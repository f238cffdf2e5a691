"""Figures of ALiBi: its matrix, its slopes, and its bias by distance."""

from __future__ import annotations

import math

import torch

from posenc.bias.alibi import ALiBi, alibi_slopes
from posenc.figures.drawn import Bars, Curves, Heat

HEADS, SHOWN_HEAD, TOKENS = 8, 2, 12


def alibi_matrix() -> Heat:
    """The bias of one head for each query and key; keys in the future are hidden."""
    positions = torch.arange(TOKENS)
    bias = ALiBi(HEADS)(positions, positions)[..., SHOWN_HEAD, :, :].reshape(TOKENS, TOKENS)
    hidden = torch.ones(TOKENS, TOKENS).triu(1).bool()
    slope = alibi_slopes(HEADS)[SHOWN_HEAD]
    return Heat(
        bias.masked_fill(hidden, -math.inf).tolist(),
        "key position",
        "query position",
        "a triangle of cells, strongest along the diagonal and fainter with every token away from it; hatched above",
        (
            f"ALiBi's bias in head {SHOWN_HEAD + 1} of {HEADS}, whose slope is {slope:g}: 0 for a token itself and "
            f"{slope:g} less for every token back. The causal mask hides the hatched keys. The stronger the "
            "colour, the larger the bias."
        ),
    )


def alibi_head_slopes() -> Bars:
    """The slope of each head, and how far back the weight has fallen to 1/e."""
    slopes = alibi_slopes(HEADS)
    return Bars(
        [str(head + 1) for head in range(HEADS)],
        {"slope": slopes, "1 / slope (tokens)": [1 / slope for slope in slopes]},
        "head",
        "two columns of bars by head: slopes halve from head to head, and the distance 1 / slope doubles",
        (
            f"ALiBi's slopes for {HEADS} heads. A bias of −slope × distance multiplies a weight by 1/e every 1 / slope "
            "tokens: the first heads attend to near keys, the last ones far back."
        ),
    )


def slopes() -> Curves:
    """The bias by distance of every second head."""
    series = {
        f"head {h + 1}": [(0.0, 0.0), (64.0, -64 * float(slope))]
        for h, slope in enumerate(alibi_slopes(HEADS))
        if h % 2 == 0
    }
    return Curves(
        series,
        "distance (tokens back)",
        "bias",
        "four straight lines from 0 downwards, the first steep and the last nearly flat",
        (
            "ALiBi: each head has a slope of its own, so that some attend to near keys and others to far ones. "
            f"Four of {HEADS} heads."
        ),
    )
