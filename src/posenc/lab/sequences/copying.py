"""Copy: say the token that stood a fixed number of tokens back.

    d a c f b a e …      lag 3
          d a c f …

The mirror image of retrieval by content: an exact distance, and nothing else. Tokens are random.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from posenc.lab.sequences.puzzle import UNASKED, Drawn, Puzzle, integers
from posenc.lab.sequences.settings import SequenceSettings
from posenc.lab.sequences.sizes import profile_of
from posenc.lab.tasks.task import Profile


@dataclass(frozen=True)
class CopySettings(SequenceSettings):
    """Numbers of the copy task."""

    task: ClassVar[str] = "copy"

    lag: int = 7  # tokens back
    symbols: int = 16  # different tokens


class Copy(Puzzle[CopySettings]):
    """An exact distance."""

    settings = CopySettings
    title = "The token a fixed distance back"
    asked = "Tokens are random; after each, the one that stood a fixed number of tokens before it is due."
    shows = (
        "The distance is the same at all lengths: this asks whether an encoding can point at an exact distance, and "
        "whether it still can far from the start. Preferring what is near is not enough."
    )

    def profile(self, name: str) -> Profile[CopySettings]:
        """See `posenc.lab.sequences.sizes`."""
        return profile_of(name, CopySettings(), lambda s: replace(s, lag=15))

    def vocabulary(self, settings: CopySettings) -> int:
        """The tokens."""
        return settings.symbols

    def shortest(self, settings: CopySettings) -> int:
        """One answer."""
        return settings.lag + 1

    def chance(self, settings: CopySettings) -> float:
        """One token of all."""
        return 1 / settings.symbols

    def check(self, settings: CopySettings) -> None:
        """See `Puzzle`."""
        if settings.lag < 1 or settings.symbols < 2:
            raise ValueError(f"lag {settings.lag} and symbols {settings.symbols}: at least 1 and 2 are needed")
        super().check(settings)

    def draw(self, settings: CopySettings, length: int, count: int, generator: torch.Generator) -> Drawn:
        """See the module."""
        tokens = integers(settings.symbols, (count, length), generator)
        first = torch.full((count, settings.lag), UNASKED)
        return Drawn(tokens, torch.cat([first, tokens[:, : length - settings.lag]], 1))
