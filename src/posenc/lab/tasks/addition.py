"""Addition: two numbers of equally many digits, least significant first, and their sum.

    7 3 + 4 4 = 1 8 0         37 + 44 = 81
              └ 1 8 0 END

A sum has one digit more than its parts, be it 0. Ids for Abacus are moved by a random shift in each training batch.
After McLeish et al., Transformers Can Do Arithmetic with the Right Embeddings, arXiv 2405.17399, section 3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, cast

import torch
from torch import Tensor

from posenc.lab.config import Config, Options, Profile, number
from posenc.lab.metrics import Metric
from posenc.lab.specs import Shape, encoding_names, entry_of
from posenc.lab.tasks.sequences import NO_ANSWER, DrawnSequences, Sequences
from posenc.positions import abacus

BASE, PLUS, EQUALS, END = 10, 10, 11, 12
FEW = ("nope", "rope", "alibi", "fire", "fox")


@dataclass(frozen=True)
class AdditionNumbers(Options):
    """Numbers of the addition task."""

    shift: int = number(15, "The largest shift of the ids of digits in training.", least=0)


class Addition(Sequences[AdditionNumbers]):
    """An algorithm."""

    name = "addition"
    title = "Sums of longer numbers than were trained"
    question = (
        "Two numbers of equally many digits are written least significant digit first, and their sum is due; it counts "
        "only if all its digits are right and it ends where it should."
    )
    shows = (
        "Each digit needs the two digits of its own place, so an encoding must tell places apart in numbers longer "
        "than any trained one."
    )
    metrics = (
        Metric("accuracy", "of sums", "higher", learned=0.95, percent=True),
        Metric("digits", "of digits", "higher", chance=1 / BASE, percent=True),
    )
    options, exact_match, ids, unit = AdditionNumbers, True, True, 3
    sizes: ClassVar = {
        "quick": {
            "train_length": 21, "lengths": (1, 2, 3), "steps": 3000, "batch_size": 64, "dim": 128, "layers": 3,
            "lr": 5e-4,
        },
        "standard": {"steps": 3000},
        "full": {"train_length": 63, "lengths": (1, 2, 3, 5), "steps": 45_000, "shift": 100},  # up to 104 digits
    }  # fmt: skip

    def profile(self, name: str) -> Profile:
        """An algorithm takes thousands of steps, so only the profile full has every encoding."""
        base = super().profile(name)
        encodings = base.encodings if name == "full" else FEW
        return replace(base, encodings=(*encodings, "abacus", "abacus+rope", "abacus+fire"))

    def vocabulary(self, config: Config) -> int:
        """Digits, two signs, the end."""
        return END + 1

    def shortest(self, config: Config) -> int:
        """One digit each."""
        return 6

    def chance(self, config: Config) -> float:
        """A guess gets all digits of a sum right only rarely, for two single digits."""
        return 0.0

    def trained_lengths(self, config: Config) -> range:
        """From single digits on: an algorithm shows itself in short numbers first."""
        return range(self.shortest(config), config.training.train_length + 1, self.unit)

    def shape(self, config: Config) -> Shape:
        """Ids have rows for 0 … shift + digits of the longest trained sum, initially as large as token embeddings."""
        rows = digits_of(config.training.train_length) + self.numbers(config).shift + 2
        return replace(super().shape(config), options={"abacus": {"max_length": rows, "init_std": 0.5}})

    def defined(self, spec: str, config: Config, test: DrawnSequences) -> bool:
        """Tables of ids end at ids, others at places."""
        ids = [name for name in encoding_names(spec) if entry_of(name).own_positions]
        rest = [name for name in encoding_names(spec) if name not in ids]
        rows = cast(int, self.shape(config).options["abacus"]["max_length"])
        within = not ids or int(self.ids_of(config, test.tokens).max()) < rows
        return within and super().defined("+".join(rest) or "nope", config, test)

    def ids_of(self, config: Config, tokens: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """See `posenc.positions.abacus`."""
        most = self.numbers(config).shift
        shift = 0 if generator is None else int(torch.randint(most + 1, (1,), generator=generator))
        return abacus(tokens, range(BASE), shift=shift)

    def draw(self, config: Config, length: int, count: int, generator: torch.Generator) -> DrawnSequences:
        """See the module."""
        digits = digits_of(length)
        parts = torch.randint(BASE, (2, count, digits), generator=generator)
        parts[..., -1] = parts[..., -1].clamp(min=1) if digits > 1 else parts[..., -1]
        places, carry = [], torch.zeros(count, dtype=torch.int64)
        for place in parts.sum(0).unbind(1):
            places.append((place + carry) % BASE)
            carry = (place + carry) // BASE
        total = torch.stack([*places, carry], 1)
        sign = torch.full((count, 1), PLUS)
        tokens = torch.cat([parts[0], sign, parts[1], sign + (EQUALS - PLUS), total], 1)
        expected = torch.cat([total, torch.full((count, 1), END)], 1)
        return DrawnSequences(tokens, torch.cat([torch.full((count, length - digits - 2), NO_ANSWER), expected], 1))


def digits_of(length: int) -> int:
    """Digits of each of the two numbers in a sequence of so many tokens."""
    return length // 3 - 1
