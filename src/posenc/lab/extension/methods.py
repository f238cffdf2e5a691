"""The rows of an extension's table as text: which method, with which factor, after which training.

rope  rope+window                      the trained model as it is, and under a sliding window of the trained length
METHOD  METHOD+resonance               its frequencies scaled, the factor always as large as the text is long
METHOD@32  METHOD@max                  the factor fixed, as a server with one configuration has it
METHOD+tuned  METHOD+resonance+tuned   after a short fine-tuning on longer texts; the factor stays that of it
rope+tuned                             the same fine-tuning without any scaling
rope+continued  rope+continued+window  as many bytes more at the trained length: what training alone is worth
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import NamedTuple

from torch import nn

from posenc.frequencies.by_parts import NTKByParts, PartNTK
from posenc.frequencies.clex import CLEX
from posenc.frequencies.interpolation import DynamicPositionInterpolation, PositionInterpolation
from posenc.frequencies.llama3 import Llama3
from posenc.frequencies.longrope import LongRoPE
from posenc.frequencies.ntk import DynamicNTK, NTKAware
from posenc.frequencies.resonance import Resonance
from posenc.frequencies.yarn import DynamicYaRN, YaRN
from posenc.lab.extension.settings import ExtensionSettings
from posenc.search import Candidate

BASE = "rope"
_CLEX_STEP = 0.05  # of its solver: five times the default, with frequencies that differ by less than 1e-6
Build = Callable[[float, ExtensionSettings], nn.Module]

# With a factor of their own. The length is that of training; beta_fast goes with it.
FACTORED: dict[str, Build] = {
    "pi": lambda factor, s: PositionInterpolation(factor),
    "ntk": lambda factor, s: NTKAware(factor),
    "part_ntk": lambda factor, s: PartNTK(factor, original_length=s.train_length),
    "ntk_by_parts": lambda factor, s: NTKByParts(factor, original_length=s.train_length, beta=s.beta_fast),
    "yarn": lambda factor, s: YaRN(factor, original_length=s.train_length, beta_fast=s.beta_fast),
    "yarn_by_turns": lambda factor, s: YaRN(
        factor, original_length=s.train_length, beta_fast=s.beta_fast, ramp="rotations"
    ),
    "llama3": lambda factor, s: Llama3(factor, original_length=s.train_length),
}
# By the length of the text at hand.
DYNAMIC: dict[str, Build] = {
    "dynamic_pi": lambda factor, s: DynamicPositionInterpolation(original_length=s.train_length),
    "dynamic_ntk": lambda factor, s: DynamicNTK(original_length=s.train_length),
    "dynamic_yarn": lambda factor, s: DynamicYaRN(original_length=s.train_length, beta_fast=s.beta_fast),
}
SEARCHED, LEARNED = "longrope", "clex"
_TRAININGS = ("tuned", "continued")
METHODS = (BASE, *FACTORED, SEARCHED, *DYNAMIC, LEARNED)


class Reading(NamedTuple):
    """What a row says."""

    method: str
    resonance: bool
    factor: int | None  # None where it follows the length, or is that of the fine-tuning
    training: str  # "", "tuned" or "continued"
    window: bool

    @property
    def trained(self) -> str:
        """The spec of the job on whose checkpoint the row is measured."""
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
    training = next((word for word in left if word in _TRAININGS), "")
    window = "window" in left
    if left != [word for word in (training, "window" * window) if word]:
        raise ValueError(f"{row}: after the method come +resonance, then @FACTOR or +tuned; rope also has +window")
    return Reading(method, resonance, int(number) if at else None, training, window)


def normal(row: str, settings: ExtensionSettings) -> str:
    """A row as it stands in tables: without spaces, in lower case, with a number for ``max``."""
    plain = "".join(row.split()).lower()
    return plain.removesuffix("@max") + f"@{settings.lengths[-1]}" if plain.endswith("@max") else plain


def check(row: str, settings: ExtensionSettings) -> None:
    """Raise a ValueError unless a row can be measured."""
    r = parse(row)
    if r.method == BASE and (r.resonance or r.factor is not None):
        raise ValueError(f"{row}: rope has no factor; it takes +window, +tuned, +continued and +continued+window")
    if r.method != BASE and (r.window or r.training == "continued"):
        raise ValueError(f"{row}: +window and +continued are controls of rope alone")
    if r.method == BASE and r.window and r.training == "tuned":
        raise ValueError(f"{row}: the window of the trained length belongs to rope or to rope+continued")
    if r.method == LEARNED and (r.training != "tuned" or r.resonance):
        raise ValueError(
            f"{row}: clex learns its frequencies; before that they are NTK-aware ones, of factor 2t − 1 at t times the "
            "trained length. clex+tuned is what can be compared"
        )
    if r.resonance and r.method not in FACTORED:
        raise ValueError(f"{row}: +resonance rounds the frequencies of a factor ({', '.join(FACTORED)})")
    if r.factor is None:
        return
    if r.training or r.method in DYNAMIC:
        raise ValueError(f"{row}: @ fixes the factor of an untrained row; this one has its own")
    if not 2 <= r.factor <= settings.lengths[-1]:
        raise ValueError(f"{row}: a factor from 2 to the longest of --lengths, {settings.lengths[-1]}, is needed")


def scaling(reading: Reading, factor: int, settings: ExtensionSettings, found: Candidate | None = None) -> nn.Module:
    """The scaling of a row at a factor.

    Args:
        reading: of any row but those of ``rope``.
        factor: how many times longer than trained; 1 is plain RoPE in every method, but for Resonance's rounding.
        settings: of the run.
        found: what a search found for this factor; needed by LongRoPE alone.
    """
    pairs = settings.dim // settings.heads // 2
    if reading.method == LEARNED:
        return CLEX(pairs, original_length=settings.train_length, max_factor=factor, step=_CLEX_STEP)
    if reading.method == SEARCHED:
        return longrope(Candidate((1.0,) * pairs, 0) if found is None else found, factor, settings)
    built = {**FACTORED, **DYNAMIC}[reading.method](float(factor), settings)
    return nn.Sequential(built, Resonance()) if reading.resonance else built


def longrope(found: Candidate, factor: int, settings: ExtensionSettings) -> LongRoPE:
    """LongRoPE with searched factors past the trained length, plain frequencies up to it, and one gain for both."""
    return LongRoPE(
        (1.0,) * len(found.factors), found.factors, original_length=settings.train_length, factor=float(factor),
        start_tokens=found.start_tokens,
    )  # fmt: skip
