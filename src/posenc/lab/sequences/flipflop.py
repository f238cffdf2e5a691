"""Flip-flop: write a bit, ignore others, read the last one written.

    WRITE 1 IGNORE 0 IGNORE 0 READ 1 IGNORE 1 WRITE 0 … READ 0
                              └ 1                       └ 0

Liu et al., Exposing Attention Glitches with Flip-Flop Language Modeling, arXiv 2306.00946, section 3: their FFL(0.8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from posenc.lab.sequences.puzzle import UNASKED, Drawn, Puzzle, integers
from posenc.lab.sequences.settings import SequenceSettings
from posenc.lab.sequences.sizes import profile_of
from posenc.lab.tasks.task import Profile

WRITE, READ, IGNORE = 2, 3, 4  # after the bits


@dataclass(frozen=True)
class FlipFlopSettings(SequenceSettings):
    """Numbers of the flip-flop task."""

    task: ClassVar[str] = "flipflop"

    ignored: float = 0.8  # share of instructions that write and read nothing; half of the rest write


class FlipFlop(Puzzle[FlipFlopSettings]):
    """Memory of one bit."""

    settings = FlipFlopSettings
    title = "The last bit that was written"
    asked = (
        "Instructions write a bit, read it, or carry a bit to be ignored; at each reading the last bit written is due."
    )
    shows = (
        "Writing is as frequent in long sequences as in short ones, so hardly any answer lies further back than in "
        "training: what is lost, is lost to the length alone."
    )

    def profile(self, name: str) -> Profile[FlipFlopSettings]:
        """See `posenc.lab.sequences.sizes`."""
        return profile_of(name, FlipFlopSettings())

    def vocabulary(self, settings: FlipFlopSettings) -> int:
        """Two bits, three instructions."""
        return 5

    def shortest(self, settings: FlipFlopSettings) -> int:
        """One writing, one reading."""
        return 4

    def chance(self, settings: FlipFlopSettings) -> float:
        """A coin."""
        return 0.5

    def check(self, settings: FlipFlopSettings) -> None:
        """See `Puzzle`."""
        if not 0 <= settings.ignored < 1:
            raise ValueError(f"ignored {settings.ignored}: a share from 0 to below 1 is needed")
        super().check(settings)

    def draw(self, settings: FlipFlopSettings, length: int, count: int, generator: torch.Generator) -> Drawn:
        """See the module."""
        slots = length // 2
        chance = torch.rand((count, slots), generator=generator, dtype=torch.float64)
        order = torch.where(
            chance < settings.ignored, IGNORE, torch.where(chance < (1 + settings.ignored) / 2, WRITE, READ)
        )
        order[:, 0], order[:, -1] = WRITE, READ
        bits = integers(2, (count, slots), generator)
        slot = torch.arange(slots).expand(count, slots)
        written = torch.where(order == WRITE, slot, 0).cummax(1).values  # slot 0 writes
        bits = torch.where(order == READ, bits.gather(1, written), bits)
        tokens = torch.stack([order, bits], -1).flatten(1)
        due = torch.where(order == READ, bits, UNASKED)
        return Drawn(tokens, torch.stack([due, torch.full_like(due, UNASKED)], -1).flatten(1))
