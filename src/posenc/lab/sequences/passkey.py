"""Passkey: a number is hidden in a long monotonous text and asked for at the end.

    filler … MARK 4 7 1 1 filler … filler ASK 4 7 1
                                          └── 4 7 1 1

After Mohtashami and Jaggi, Landmark Attention, arXiv 2305.16300, section 4.2, with tokens in the place of sentences.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from posenc.lab.sequences.puzzle import UNASKED, Drawn, Puzzle, integers
from posenc.lab.sequences.settings import SequenceSettings
from posenc.lab.sequences.sizes import profile_of
from posenc.lab.tasks.task import Profile

DIGITS, MARK, ASK, FILLER = 10, 10, 11, 12  # the first filler token
PERIOD = 8  # tokens of filler until it repeats


@dataclass(frozen=True)
class PasskeySettings(SequenceSettings):
    """Numbers of the passkey task."""

    task: ClassVar[str] = "passkey"

    digits: int = 4  # of the number


class Passkey(Puzzle[PasskeySettings]):
    """Retrieval over any distance."""

    settings = PasskeySettings
    title = "A number hidden in a long text"
    asked = (
        "A number is hidden at a place drawn at random in a text that repeats itself; at the end its digits are asked "
        "for, one after the other."
    )
    shows = (
        "The number lies the further back the longer the text: this is retrieval over distance. An encoding that "
        "prefers what is near may lose it, which perplexity would not show."
    )

    def profile(self, name: str) -> Profile[PasskeySettings]:
        """See `posenc.lab.sequences.sizes`."""
        return profile_of(name, PasskeySettings(), lambda s: replace(s, digits=6))

    def vocabulary(self, settings: PasskeySettings) -> int:
        """Digits, two words of order, filler."""
        return FILLER + PERIOD

    def shortest(self, settings: PasskeySettings) -> int:
        """The number twice, with its words of order."""
        return 2 * settings.digits + 2

    def chance(self, settings: PasskeySettings) -> float:
        """One digit of ten."""
        return 1 / DIGITS

    def check(self, settings: PasskeySettings) -> None:
        """See `Puzzle`."""
        if settings.digits < 1:
            raise ValueError(f"digits {settings.digits}: at least 1 is needed")
        super().check(settings)

    def draw(self, settings: PasskeySettings, length: int, count: int, generator: torch.Generator) -> Drawn:
        """See the module."""
        digits = settings.digits
        key = integers(DIGITS, (count, digits), generator)
        start = integers(length - 2 * digits, (count, 1), generator)  # of MARK
        phase = integers(PERIOD, (count, 1), generator)
        place = torch.arange(length).expand(count, length)
        text = FILLER + (place - (digits + 1) * (place > start) + phase) % PERIOD
        inside, asked = place - start - 1, place - (length - digits)  # digit of the number; digit that is asked for
        tokens = torch.where(inside == -1, MARK, text)
        tokens = torch.where((inside >= 0) & (inside < digits), key.gather(1, inside.clamp(0, digits - 1)), tokens)
        tokens = torch.where(asked == 0, ASK, tokens)
        tokens = torch.where(asked > 0, key.gather(1, (asked - 1).clamp(min=0)), tokens)
        answers = torch.where(asked >= 0, key.gather(1, asked.clamp(min=0)), UNASKED)
        return Drawn(tokens, answers)
