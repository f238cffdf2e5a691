"""The rows of an extension's table as text: which method, with which factor, after which training.

rope                         the trained model as it is
METHOD  METHOD+resonance     its frequencies scaled, the factor always as large as the text is long
METHOD@32  METHOD@max        the factor fixed, as a server with one configuration has it
DISTANCE  DISTANCE@32        its distances moved instead (self_extend, dual_chunk, …), untrained; some have a factor
clipped                      its slowest pairs slowed down to rest, at every length alike: it has no factor
METHOD+tuned  METHOD+resonance+tuned   after a short fine-tuning on longer texts; the factor stays that of it
rope+tuned                   the same fine-tuning without any scaling
rope+continued               as many bytes more at the trained length: what training alone is worth
"""

from __future__ import annotations

import difflib
from typing import NamedTuple

from torch import nn

from posenc.catalogue import create_encoding, encoding_info, list_encodings
from posenc.encoding import RotaryEncoding, ScoreEncoding
from posenc.frequencies.by_name import DYNAMIC, FACTORED, Trained
from posenc.frequencies.clex import CLEX
from posenc.frequencies.clipped import Clipped, pairs_to_clip
from posenc.frequencies.longrope import LongRoPE
from posenc.frequencies.resonance import Resonance
from posenc.search import Candidate

BASE = "rope"
_CLEX_STEP = 0.05  # of its solver: five times the default, with frequencies that differ by less than 1e-6


SEARCHED, LEARNED, CLIPPED = "longrope", "clex", "clipped"
TUNED, CONTINUED = "tuned", "continued"
SCALED = (BASE, *FACTORED, SEARCHED, *DYNAMIC, LEARNED, CLIPPED)
DISTANCES = tuple(name for name in list_encodings("score") if encoding_info(name).stretches)
GROWN = ("group", "factor")  # options of those that slow positions down by as much as a text needs
METHODS = (*SCALED, *DISTANCES)


class Reading(NamedTuple):
    """What a row says."""

    method: str
    resonance: bool
    factor: int | None  # None where it follows the length, or is that of the fine-tuning
    training: str  # "", "tuned" or "continued"

    @property
    def trained(self) -> str:
        """The training on whose weights the row is measured."""
        if not self.training:
            return BASE
        return "+".join([self.method, *(["resonance"] if self.resonance else []), self.training])


def parse(row: str) -> Reading:
    """Read a row; a ValueError that says what is wrong with it."""
    head, at, number = row.partition("@")
    method, *rest = head.split("+")
    if method not in METHODS:
        near = difflib.get_close_matches(method, METHODS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"{row}: --task extension knows no {method!r}{hint} ({', '.join(METHODS)})")
    if at and not number.isdecimal():
        raise ValueError(f"{row}: a whole number, or max, is needed after the @, and nothing behind it")
    resonance = rest[:1] == ["resonance"]
    left = rest[1:] if resonance else rest
    if len(left) > 1 or not set(left) <= {TUNED, CONTINUED}:
        raise ValueError(
            f"{row}: after the method come +resonance, then @FACTOR or +tuned; rope also has +continued, and its "
            "sliding window is measured without a row of its own"
        )
    return Reading(method, resonance, int(number) if at else None, left[0] if left else "")


def normal(row: str, longest: int) -> str:
    """A row as it stands in tables: without spaces, in lower case, with the ``longest`` test length for ``max``."""
    plain = "".join(row.split()).lower()
    return plain.removesuffix("@max") + f"@{longest}" if plain.endswith("@max") else plain


def check(row: str, longest: int) -> None:
    """Raise a ValueError unless a row can be measured, with tests of up to ``longest`` training lengths."""
    r = parse(row)
    if r.method == BASE and (r.resonance or r.factor is not None):
        raise ValueError(f"{row}: rope has no factor; it takes +tuned and +continued")
    if r.method != BASE and r.training == CONTINUED:
        raise ValueError(f"{row}: +continued is a control, of rope alone")
    if r.method == LEARNED and (r.training != TUNED or r.resonance):
        raise ValueError(
            f"{row}: clex learns its frequencies; before that they are NTK-aware ones, of factor 2t − 1 at t times the "
            "trained length. clex+tuned is what can be compared"
        )
    if r.method in DISTANCES and (r.training or r.resonance):
        raise ValueError(f"{row}: {r.method} moves the distances of a trained model as it is: no +tuned, no +resonance")
    if r.method in DISTANCES and r.factor is not None and not grows(r.method):
        raise ValueError(f"{row}: {r.method} has no factor: it does the same in texts of any length")
    if r.resonance and r.method not in FACTORED:
        raise ValueError(f"{row}: +resonance rounds the frequencies of a factor ({', '.join(FACTORED)})")
    if r.factor is None:
        return
    if r.method == CLIPPED:
        raise ValueError(f"{row}: {CLIPPED} has no factor: it slows the same pairs at every length")
    if r.training or r.method in DYNAMIC:
        raise ValueError(f"{row}: @ fixes the factor of an untrained row; this one has its own")
    if not 2 <= r.factor <= longest:
        raise ValueError(f"{row}: a factor from 2 to the longest of --lengths, {longest}, is needed")


def scaling(reading: Reading, factor: int, trained: Trained, found: Candidate | None = None) -> nn.Module:
    """The scaling of a row at a factor.

    Args:
        reading: of any row but those of ``rope``.
        factor: how many times longer than trained; 1 is plain RoPE, but for Resonance's rounding and clipped pairs.
        trained: what the base was trained on.
        found: what a search found for this factor; LongRoPE without it has plain frequencies.
    """
    if reading.method == LEARNED:
        return CLEX(trained.pairs, original_length=trained.length, max_factor=factor, step=_CLEX_STEP)
    if reading.method == CLIPPED:
        return Clipped(pairs_to_clip(trained.pairs))
    if reading.method == SEARCHED:
        return longrope(found or Candidate((1.0,) * trained.pairs, 0), factor, trained)
    built = {**FACTORED, **DYNAMIC}[reading.method](float(factor), trained)
    return nn.Sequential(built, Resonance()) if reading.resonance else built


def grows(method: str) -> bool:
    """Whether a method that moves distances has a factor."""
    return not encoding_info(method).takes.isdisjoint(GROWN)


def moved(reading: Reading, factor: int, trained: Trained, rotation: RotaryEncoding) -> ScoreEncoding:
    """What turns queries and keys in the place of ``rotation``, in a row that moves distances.

    Windows and chunks are those of the authors at this trained length, as the catalogue has them.

    Args:
        reading: of a row of `DISTANCES`.
        factor: how many times longer than trained; at 1 what has a factor is plain RoPE.
        trained: what the base was trained on.
        rotation: of the base.
    """
    entry, length = encoding_info(reading.method), trained.length
    plain = {word: 1 for word in GROWN if word in entry.takes} if factor == 1 else {}
    made = create_encoding(entry.name, rotation=rotation, train_length=length, max_length=factor * length, **plain)
    assert isinstance(made, ScoreEncoding)
    return made


def longrope(found: Candidate, factor: int, trained: Trained) -> LongRoPE:
    """LongRoPE with searched factors past the trained length, plain frequencies up to it, and one gain for both."""
    return LongRoPE(
        (1.0,) * len(found.factors), found.factors, original_length=trained.length, factor=float(factor),
        start_tokens=found.start_tokens,
    )  # fmt: skip
