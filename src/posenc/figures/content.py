"""Figures of positions from content: CoPE's counts over a sentence, and the stick that stick-breaking divides."""

from __future__ import annotations

import torch
from torch import Tensor

from posenc.attention_maps import read_attention
from posenc.context import Context
from posenc.figures.drawn import Bars
from posenc.score.cope import CoPE
from posenc.weight.stick_breaking import StickBreaking

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
