"""Clipped RoPE: the slowest frequencies are reduced, down to zero, softly or at once.

    theta_j ← theta_j · (1 + cos(pi · t_j)) / 2,   t_j = (j − start) / (count − 1),   start = pairs − count
    hard:  theta_j ← 0  for j ≥ start

Pairs below start keep their frequency. The taper begins at 1, with pair ``start`` itself, and ends at 0: so the last
pair carries content at any distance. With ``count`` pairs or fewer in the head, all of them are tapered. Slow pairs
are those that never complete a turn in training and meet new angles past it; it comes after other scalings.

Its authors call it CoPE. In this library `CoPE` is contextual position encoding (arXiv 2405.18719), which was there
first and has nothing to do with it.

Source: arXiv 2602.05258 (Clipped RoPE, called CoPE there), section on soft clipping, as in its released code.
Checked against: hrlics/CoPE modeling_cope.py: frequencies, cos and sin, rotated queries and keys.
Departs from the source: the number of pairs is an option, where the code has 20 for every width; under a
    length-dependent scaling the code tapers softly whatever was asked for, here the kind holds.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

from posenc.arguments import check_choice, check_whole
from posenc.entry import Entry, Shape
from posenc.frequencies._defaults import pairs_of
from posenc.frequencies.spectrum import Scaling, Spectrum

Kind = Literal["soft", "hard"]


def pairs_to_clip(pairs: int) -> int:
    """20 of 64 pairs, as the authors have it, and as large a share of others.

    >>> pairs_to_clip(8)
    2
    """
    return max(1, round(pairs * 20 / 64))


class Clipped(Scaling):
    """Lower frequencies for the slowest pairs, down to zero.

    Args:
        count: pairs that are clipped, the slowest ones; the authors' 20 is for heads of 64 pairs.
        kind: "soft", half a cosine from 1 to 0 over these pairs, or "hard", zero for all of them.

    >>> from posenc import RoPE
    >>> (RoPE(128, scaling=Clipped(20, kind="hard")).spectrum().theta > 0).sum()
    tensor(44)
    """

    def __init__(self, count: int = 20, *, kind: Kind = "soft") -> None:
        super().__init__()
        check_whole("count", count)
        check_choice("kind", kind, get_args(Kind))
        self.count, self.kind = count, kind

    def shares(self, pairs: int) -> list[float]:
        """What is left of the frequency of each of ``pairs`` pairs, from 1 to 0."""
        count = min(self.count, pairs)
        factors = [1.0] * (pairs - count)
        if self.kind == "hard":
            return factors + [0.0] * count
        return factors + [(1 + math.cos(math.pi * step / max(1, count - 1))) / 2 for step in range(count)]

    def forward(self, spectrum: Spectrum) -> Spectrum:
        shares = spectrum.theta.new_tensor(self.shares(spectrum.theta.shape[-1]))
        return spectrum._replace(theta=spectrum.theta * shares)

    def extra_repr(self) -> str:
        return f"{self.count}, kind={self.kind!r}"


def _slowest_third(shape: Shape) -> dict[str, object]:
    """How many pairs Clipped RoPE slows down."""
    pairs = pairs_of(shape)
    return {} if pairs is None else {"count": pairs_to_clip(pairs)}


ENTRY = Entry(
    name="clipped",
    scaling=Clipped,
    title="Clipped RoPE: the slowest pairs are slowed to frequency 0 (its authors' CoPE)",
    formula="theta_j ← theta_j · (1 + cos(pi t_j))/2 for the slowest pairs, t_j from 0 to 1",
    source="arXiv 2602.05258",
    parameters="none",
    cost="none",
    past_training="pairs without a full rotation in training rotate less or not at all; fast pairs keep theirs",
    reads="distances",
    extension="is itself one, trained for or put in later",
    used_in="its paper's own models; no other is known to us",
    avoid="on a checkpoint that cannot be trained further and relies on its slowest pairs",
    defaults=_slowest_third,
)
