"""Flip-flop: write a bit, ignore others, read the last one written.

    WRITE 1 IGNORE 0 IGNORE 0 READ 1 IGNORE 1 WRITE 0 … READ 0
                              └ 1                       └ 0

Liu et al., Exposing Attention Glitches with Flip-Flop Language Modeling, arXiv 2306.00946, section 3: their FFL(0.8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from posenc.lab.config import Config, Options, number
from posenc.lab.tasks.sequences import BY_DISTANCE, NO_ANSWER, DrawnSequences, Sequences

WRITE, READ, IGNORE = 2, 3, 4  # after the bits


@dataclass(frozen=True)
class FlipFlopNumbers(Options):
    """Numbers of the flip-flop task."""

    ignored: float = number(
        0.8, "Share of instructions that write and read nothing; half of the rest write.", least=0, most=0.99
    )


class FlipFlop(Sequences[FlipFlopNumbers]):
    """Memory of one bit."""

    name = "flipflop"
    title = "The last bit that was written"
    question = (
        "Instructions write a bit, read it, or carry a bit to be ignored; at each reading the last bit written is due."
    )
    shows = (
        "Writing is as frequent in long sequences as in short ones, so hardly any answer lies further back than in "
        "training: what is lost, is lost to the length alone."
    )
    options, curves = FlipFlopNumbers, (BY_DISTANCE,)
    sizes: ClassVar = {"standard": {"steps": 800}}

    def vocabulary(self, config: Config) -> int:
        """Two bits, three instructions."""
        return 5

    def shortest(self, config: Config) -> int:
        """One writing, one reading."""
        return 4

    def chance(self, config: Config) -> float:
        """A coin."""
        return 0.5

    def draw(self, config: Config, length: int, count: int, generator: torch.Generator) -> DrawnSequences:
        """See the module. A slot is an instruction and its bit; the last one reads."""
        slots, ignored = length // 2, self.numbers(config).ignored
        chance = torch.rand((count, slots), generator=generator, dtype=torch.float64)
        order = torch.where(chance < ignored, IGNORE, torch.where(chance < (1 + ignored) / 2, WRITE, READ))
        order[:, 0], order[:, -1] = WRITE, READ
        bits = torch.randint(2, (count, slots), generator=generator)
        slot = torch.arange(slots).expand(count, slots)
        written = torch.where(order == WRITE, slot, 0).cummax(1).values  # slot 0 writes
        reads = order == READ
        bits = torch.where(reads, bits.gather(1, written), bits)
        nothing = torch.full_like(bits, NO_ANSWER)
        answers = torch.stack([torch.where(reads, bits, NO_ANSWER), nothing], -1)
        distances = torch.stack([torch.where(reads, 2 * (slot - written) - 1, 0), 0 * nothing], -1)
        return DrawnSequences(torch.stack([order, bits], -1).flatten(1), answers.flatten(1), distances.flatten(1))
