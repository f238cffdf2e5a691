"""Counting: after each token, how many ticks there were since the last reset.

    PASS TICK PASS TICK RESET TICK PASS …
       0    1    1    2     0    1    1

After the counting task of Golovneva et al., Contextual Position Encoding, arXiv 2405.18719, section 5.2; asked at
every token rather than at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from posenc.lab.sequences.puzzle import Drawn, Puzzle
from posenc.lab.sequences.settings import SequenceSettings
from posenc.lab.sequences.sizes import profile_of
from posenc.lab.tasks.task import Profile

PASS, TICK, RESET, ZERO = 0, 1, 2, 3  # the first answer
RESETS, TICKS = 0.1, 0.4  # how often


@dataclass(frozen=True)
class CountingSettings(SequenceSettings):
    """Numbers of the counting task."""

    task: ClassVar[str] = "counting"

    limit: int = 9  # the largest count; no tick follows it before a reset


class Counting(Puzzle[CountingSettings]):
    """Sums over what was seen."""

    settings = CountingSettings
    title = "How many since the last reset"
    asked = "Ticks, resets and tokens without meaning; after each, the number of ticks since the last reset is due."
    shows = (
        "Resets are as frequent in long sequences as in short ones, so hardly any answer needs tokens further back "
        "than in training: what is lost, is lost to the length alone."
    )

    def profile(self, name: str) -> Profile[CountingSettings]:
        """See `posenc.lab.sequences.sizes`."""
        return profile_of(name, CountingSettings())

    def vocabulary(self, settings: CountingSettings) -> int:
        """Three tokens, and the counts."""
        return ZERO + settings.limit + 1

    def shortest(self, settings: CountingSettings) -> int:
        """Any."""
        return 2

    def chance(self, settings: CountingSettings) -> float:
        """The most frequent count far from the start: none, or the limit."""
        on = TICKS / (TICKS + RESETS)
        return max(1 - on, on**settings.limit)

    def check(self, settings: CountingSettings) -> None:
        """See `Puzzle`."""
        if settings.limit < 1:
            raise ValueError(f"limit {settings.limit}: at least 1 is needed")
        super().check(settings)

    def draw(self, settings: CountingSettings, length: int, count: int, generator: torch.Generator) -> Drawn:
        """See the module."""
        chance = torch.rand((count, length), generator=generator, dtype=torch.float64)
        reset, tick = chance < RESETS, (chance >= RESETS) & (chance < RESETS + TICKS)
        ticks = tick.long().cumsum(1)
        before = ticks - torch.where(reset, ticks, 0).cummax(1).values  # since the last reset, however many
        tick &= before <= settings.limit
        tokens = torch.where(reset, RESET, torch.where(tick, TICK, PASS))
        return Drawn(tokens, ZERO + before.clamp(max=settings.limit))
