"""Addition: two numbers of equally many digits, least significant first, and their sum.

    7 3 + 4 4 = 1 8 0         37 + 44 = 81
              └ 1 8 0 END

A sum has one digit more than its parts, be it 0. Ids for Abacus are moved by a random shift in each training batch.
After McLeish et al., Transformers Can Do Arithmetic with the Right Embeddings, arXiv 2405.17399, section 3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from posenc.lab.sequences.puzzle import UNASKED, Drawn, Puzzle, integers
from posenc.lab.sequences.settings import SequenceSettings, SequenceShape
from posenc.lab.sequences.sizes import profile_of
from posenc.lab.tasks.task import Profile
from posenc.positions import abacus

BASE, PLUS, EQUALS, END = 10, 10, 11, 12
FEW = ("nope", "rope", "alibi", "fire", "fox")
LENGTHS = (1, 2, 3, 5)  # of the profile full: up to 104 digits


@dataclass(frozen=True)
class AdditionSettings(SequenceSettings):
    """Numbers of the addition task."""

    task: ClassVar[str] = "addition"

    train_length: int = 21
    lengths: tuple[int, ...] = (1, 2, 3)
    steps: int = 3000
    batch_size: int = 64
    layers: int = 3
    lr: float = 5e-4
    shift: int = 15  # the largest that ids are moved by in training

    @property
    def digits(self) -> int:
        """Of each of the two numbers at the training length."""
        return digits_of(self.train_length)

    @property
    def shape(self) -> SequenceShape:
        """What encodings may need to know of the model; ids are 0 … shift + digits of the longest trained sum."""
        return SequenceShape(self.dim, self.heads, self.layers, self.train_length, ids=self.digits + self.shift + 2)


class Addition(Puzzle[AdditionSettings]):
    """An algorithm."""

    settings = AdditionSettings
    title = "Sums of longer numbers than were trained"
    asked = (
        "Two numbers of equally many digits are written least significant digit first, and their sum is due; it counts "
        "only if all its digits are right and it ends where it should."
    )
    shows = (
        "Each digit needs the two digits of its own place, so an encoding must tell places apart in numbers longer "
        "than any trained one."
    )
    whole, ids, unit = True, True, 3

    def profile(self, name: str) -> Profile[AdditionSettings]:
        """See `posenc.lab.sequences.sizes`; as many digits as the budget teaches.

        An algorithm takes thousands of steps, so only the profile full has every encoding.
        """
        longer = profile_of(name, AdditionSettings(), lambda s: replace(s, train_length=63, lengths=LENGTHS, shift=100))
        others = longer.encodings if name == "full" else FEW
        return replace(longer, encodings=(*others, "abacus", "abacus+rope", "abacus+fire"))

    def vocabulary(self, settings: AdditionSettings) -> int:
        """Digits, two signs, the end."""
        return END + 1

    def shortest(self, settings: AdditionSettings) -> int:
        """One digit each."""
        return 6

    def chance(self, settings: AdditionSettings) -> float:
        """No guess gets all digits of a sum right, but rarely that of two single digits."""
        return 0.0

    def check(self, settings: AdditionSettings) -> None:
        """See `Puzzle`."""
        if settings.shift < 0:
            raise ValueError(f"shift {settings.shift}: it must not be negative")
        super().check(settings)

    def trained_lengths(self, settings: AdditionSettings) -> range:
        """From single digits on: an algorithm shows itself in short numbers first."""
        return range(self.shortest(settings), settings.train_length + 1, self.unit)

    def draw(self, settings: AdditionSettings, length: int, count: int, generator: torch.Generator) -> Drawn:
        """See the module."""
        digits = digits_of(length)
        parts = integers(BASE, (2, count, digits), generator)
        parts[..., -1] = parts[..., -1].clamp(min=1) if digits > 1 else parts[..., -1]
        places, carry = [], torch.zeros(count, dtype=torch.int64)
        for place in parts.sum(0).unbind(1):
            places.append((place + carry) % BASE)
            carry = (place + carry) // BASE
        total = torch.stack([*places, carry], 1)
        sign = torch.full((count, 1), PLUS)
        tokens = torch.cat([parts[0], sign, parts[1], sign + (EQUALS - PLUS), total], 1)
        asked = torch.cat([total, torch.full((count, 1), END)], 1)
        return Drawn(tokens, torch.cat([torch.full((count, length - digits - 2), UNASKED), asked], 1))

    def ids_of(self, settings: AdditionSettings, tokens: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """See `posenc.positions.abacus`."""
        shift = 0 if generator is None else int(integers(settings.shift + 1, (1,), generator))
        return abacus(tokens, range(BASE), shift=shift)


def digits_of(length: int) -> int:
    """Digits of each number in a sequence of so many tokens."""
    return length // 3 - 1
