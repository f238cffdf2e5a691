"""Figures of positions in a text: first ideas, ALiBi, positions from content, and where positions enter a block."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from posenc.attention_maps import read_attention
from posenc.bias.alibi import ALiBi, alibi_slopes
from posenc.context import Context
from posenc.figures.drawn import Bars, Curves, Heat, Stacked
from posenc.score.cope import CoPE
from posenc.weight.stick_breaking import StickBreaking

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
    """Positions of a sequence that is longer than the training length, as they are and scaled."""
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


SENTENCES = ["The", "cat", "slept", ".", "The", "dog", "barked", ".", "A", "bird", "sang"]
OPENS, OPEN, SHUT = ".", 2.5, -2.5  # the logit of the gate at a full stop, and at any other token
KEYS, LOGIT, SEED = 10, -1.5, 0  # of the stick: keys, their mean score


def cope_counts() -> Bars:
    """Gates of the last query, and the positions that they add up to, for a head that counts full stops."""
    tokens = len(SENTENCES)
    q, k = torch.ones(1, 1, 1, 1), torch.tensor([OPEN if token == OPENS else SHUT for token in SENTENCES])
    positions = _counts(q, k.view(1, 1, tokens, 1))
    gates = positions - torch.cat([positions[1:], positions.new_zeros(1)])
    return Bars(
        [f"“{token}”" for token in SENTENCES],
        {"gate": gates.tolist(), "position": positions.tolist()},
        "key, the query is the last",
        "bars by word: gates are large at full stops only; positions grow from the last word back, by one a sentence",
        (
            f"CoPE counts from the query, “{SENTENCES[-1]}”, back. A gate says how much a token counts; here a head "
            f"opens it at full stops (logit {OPEN:g}, else {SHUT:g}), so positions count sentences. Gates are never "
            "quite 0 or 1, and positions are fractions: the two table entries around each are mixed."
        ),
    )


def _counts(q: Tensor, k: Tensor) -> Tensor:
    """CoPE's positions ``(keys,)`` of one query."""
    keys = k.shape[-2]
    context = Context(q, k, k, torch.tensor([keys - 1]), torch.arange(keys), scale=1.0)
    return CoPE(1, max_position=keys).counts(q, context).detach()[0, 0, 0]


def stick_breaking() -> Bars:
    """From the newest key back: what is left of the stick, the share that a key takes, and its weight."""
    source = torch.Generator().manual_seed(SEED)
    q, k = torch.randn(2, 1, 1, KEYS + 1, 4, generator=source)
    q[..., 0], k[..., 0] = 2.0, LOGIT  # adds LOGIT to every score, whose scale is 1/2
    weights = read_attention(q, k, encodings=[StickBreaking()]).weights[0, 0, -1, :-1].flip(-1)  # newest first
    left = 1 - torch.cat([weights.new_zeros(1), weights.cumsum(-1)[:-1]])
    return Bars(
        [str(back) for back in range(1, KEYS + 1)],
        {"stick left": left.tolist(), "share taken": (weights / left).tolist(), "weight": weights.tolist()},
        "tokens back",
        "three columns of bars: the stick shrinks from key to key, and a weight is the share taken of what is left",
        (
            f"Stick-breaking over {KEYS} keys with random scores, from the newest key back. Each key takes the share "
            "sigmoid(score) of what is left of the stick; weight = stick left × share taken. "
            f"At the end {float(1 - weights.sum()):.0%} of the stick is left."
        ),
    )
