"""Copy: say the token that stood a fixed number of tokens back.

    d a c f b a e …      lag 3
          d a c f …

The mirror image of retrieval by content: an exact distance, and nothing else. Tokens are random.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from posenc.lab.config import Config, Options, number
from posenc.lab.tasks.sequences import NO_ANSWER, DrawnSequences, Sequences


@dataclass(frozen=True)
class CopyNumbers(Options):
    """Numbers of the copy task."""

    lag: int = number(7, "Tokens back that the token to be copied stands.", least=1)
    symbols: int = number(16, "Different tokens.", least=2)


class Copy(Sequences[CopyNumbers]):
    """An exact distance."""

    name = "copy"
    title = "The token a fixed distance back"
    question = "Tokens are random; after each, the token a fixed number of tokens before it is due."
    shows = (
        "The distance is the same at all lengths: this asks whether an encoding can point at an exact distance, and "
        "whether it still can far from the start. Preferring what is near is not enough."
    )
    options = CopyNumbers
    sizes: ClassVar = {"full": {"lag": 15}}

    def vocabulary(self, config: Config) -> int:
        """The tokens."""
        return self.numbers(config).symbols

    def shortest(self, config: Config) -> int:
        """One answer."""
        return self.numbers(config).lag + 1

    def chance(self, config: Config) -> float:
        """One token of all."""
        return 1 / self.numbers(config).symbols

    def draw(self, config: Config, length: int, count: int, generator: torch.Generator) -> DrawnSequences:
        """See the module."""
        lag = self.numbers(config).lag
        tokens = torch.randint(self.numbers(config).symbols, (count, length), generator=generator)
        return DrawnSequences(tokens, torch.cat([torch.full((count, lag), NO_ANSWER), tokens[:, : length - lag]], 1))
