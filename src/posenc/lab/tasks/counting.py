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

from posenc.lab.config import Config, Options, number
from posenc.lab.tasks.sequences import BY_DISTANCE, DrawnSequences, Sequences

PASS, TICK, RESET, ZERO = 0, 1, 2, 3  # the first answer
RESETS, TICKS = 0.1, 0.4  # how often


@dataclass(frozen=True)
class CountingNumbers(Options):
    """Numbers of the counting task."""

    limit: int = number(9, "The largest count; no tick follows it before a reset.", least=1)


class Counting(Sequences[CountingNumbers]):
    """Sums over what was seen."""

    name = "counting"
    title = "How many since the last reset"
    question = "Ticks, resets and tokens without meaning; after each, the number of ticks since the last reset is due."
    shows = (
        "Resets are as frequent in long sequences as in short ones, so hardly any answer needs tokens further back "
        "than in training: what is lost, is lost to the length alone."
    )
    options, curves = CountingNumbers, (BY_DISTANCE,)
    sizes: ClassVar = {"quick": {"steps": 800}}

    def vocabulary(self, config: Config) -> int:
        """Three tokens, and the counts."""
        return ZERO + self.numbers(config).limit + 1

    def shortest(self, config: Config) -> int:
        """Any."""
        return 2

    def chance(self, config: Config) -> float:
        """The most frequent count far from the start: none, or the limit."""
        on = TICKS / (TICKS + RESETS)
        return float(max(1 - on, on ** self.numbers(config).limit))

    def draw(self, config: Config, length: int, count: int, generator: torch.Generator) -> DrawnSequences:
        """See the module. Before the first reset, what is needed reaches back to the start."""
        limit = self.numbers(config).limit
        chance = torch.rand((count, length), generator=generator, dtype=torch.float64)
        reset, tick = chance < RESETS, (chance >= RESETS) & (chance < RESETS + TICKS)
        ticks, place = tick.long().cumsum(1), torch.arange(length)
        before = ticks - torch.where(reset, ticks, 0).cummax(1).values  # since the last reset, however many
        since = place - torch.where(reset, place, -1).cummax(1).values
        tokens = torch.where(reset, RESET, torch.where(tick & (before <= limit), TICK, PASS))
        return DrawnSequences(tokens, ZERO + before.clamp(max=limit), since)
