"""Recall: a key and its value are shown once, and once the key is asked for its value.

    .. .. k3 v1 .. .. k7 v4 .. .. k7 .. .. .. k3 .. ..
                                  └ v4        └ v1

The value is due but not shown again: otherwise the last keys would follow by elimination. All keys are asked in the
last part, each as far from where it was shown as a draw decides, all octaves alike as far as there is room: 8 to 16
tokens back as often as 16 to 32. Past the trained length half of the keys lie within it, the others beyond it.
Multi-query associative recall after Arora et al., Zoology, arXiv 2312.04927, section 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from posenc.lab.config import Config, Options, number
from posenc.lab.tasks.sequences import BY_DISTANCE, NO_ANSWER, DrawnSequences, Sequences

NOISE = 8  # tokens without meaning


@dataclass(frozen=True)
class RecallNumbers(Options):
    """Numbers of the recall task."""

    pairs: int = number(8, "Pairs of a key and its value in a sequence.", least=1)
    symbols: int = number(16, "Different keys, and as many values.", least=2)


class Recall(Sequences[RecallNumbers]):
    """Retrieval by content."""

    name = "recall"
    title = "Which value belongs to a key"
    question = (
        "Pairs of a key and a value are strewn among tokens without meaning; at the end each key comes back once, and "
        "after it its value is due."
    )
    shows = (
        "A model that solves it attends to the earlier place with the same content and reads the token after it, at "
        "any distance. The pairs stay as many at all lengths; those that count past the trained length lie beyond it."
    )
    options, curves, beyond = RecallNumbers, (BY_DISTANCE,), True
    sizes: ClassVar = {"standard": {"steps": 800}, "full": {"pairs": 32, "symbols": 64}}

    def vocabulary(self, config: Config) -> int:
        """Keys, values, noise."""
        return 2 * self.numbers(config).symbols + NOISE

    def shortest(self, config: Config) -> int:
        """Half of it holds the pairs, the other half asks for them."""
        return 4 * self.numbers(config).pairs

    def chance(self, config: Config) -> float:
        """One value of all."""
        return 1 / self.numbers(config).symbols

    def check(self, config: Config) -> None:
        """See `Task`."""
        o = self.numbers(config)
        if o.pairs > o.symbols:
            raise ValueError(f"--pairs {o.pairs}: at most --symbols {o.symbols} are needed")
        super().check(config)

    def draw(self, config: Config, length: int, count: int, generator: torch.Generator) -> DrawnSequences:
        """See the module. A slot is two tokens."""
        pairs, symbols, slots = self.numbers(config).pairs, self.numbers(config).symbols, length // 2
        trained = config.training.train_length
        keys = torch.rand((count, symbols), generator=generator, dtype=torch.float64).argsort(1)[:, :pairs]
        values = symbols + torch.randint(symbols, (count, pairs), generator=generator)
        late = min(length, trained) // 4
        queried = (
            torch.rand((count, late), generator=generator, dtype=torch.float64).argsort(1)[:, :pairs] + slots - late
        )
        shown = _places(queried, slots, trained // 2, generator)
        tokens = 2 * symbols + torch.randint(NOISE, (count, slots, 2), generator=generator)
        answers, distances = torch.full_like(tokens, NO_ANSWER), torch.zeros_like(tokens)
        row = torch.arange(count)[:, None]
        tokens[row, shown] = torch.stack([keys, values], -1)
        tokens[row, queried, 0] = keys
        answers[row, queried, 0], distances[row, queried, 0] = values, 2 * (queried - shown) - 1
        return DrawnSequences(tokens.flatten(1), answers.flatten(1), distances.flatten(1))


def _places(queried: Tensor, slots: int, trained: int, generator: torch.Generator) -> Tensor:
    """Where pairs are shown that are asked in the slots ``asked`` (count, pairs), none of them anywhere twice.

    Where there are more slots than ``trained``, the second half of the pairs lies farther back than that.
    """
    count, pairs = queried.shape
    free = torch.ones(count, slots, dtype=torch.bool).scatter(1, queried, False)
    shown = []
    for pair in range(pairs):
        back = queried[:, pair : pair + 1] - torch.arange(slots)
        reach = back > trained if slots > trained and pair >= pairs // 2 else (back > 0) & (back <= trained)
        weights = (free & reach) / back.clamp(min=1).double()
        shown.append(torch.multinomial(weights, 1, generator=generator))
        free.scatter_(1, shown[-1], False)
    return torch.cat(shown, 1)
