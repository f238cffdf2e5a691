"""Passkey: a few words are hidden in a long monotonous text and asked for at the end.

    1 2 3 4 5 5 8 2 6 1 2 3 … 7 0 1 1 8 2 6
              └ the needle ┘          └── 8 2 6 1

The text goes on to the next word, from the last to the first. The needle has no word of its own: it begins where a word
is said twice, and its words are those of the text, each neither the one before it nor the next. Another word said
twice asks for it. It lies anywhere, all places alike.
After Mohtashami and Jaggi, Landmark Attention, arXiv 2305.16300, section 4.2, with tokens in the place of sentences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from posenc.lab.config import Config, Options, number
from posenc.lab.tasks.sequences import BY_DISTANCE, NO_ANSWER, DrawnSequences, Sequences


@dataclass(frozen=True)
class PasskeyNumbers(Options):
    """Numbers of the passkey task."""

    needle: int = number(4, "Words that are hidden.", least=1)
    words: int = number(12, "Different words of the text.", least=4)


class Passkey(Sequences[PasskeyNumbers]):
    """Retrieval over any distance."""

    name = "passkey"
    title = "A few words hidden in a long text"
    question = (
        "A text goes through its words in order, again and again; at a place drawn at random a few of them stand out "
        "of order, and at the end they are asked for, one after the other."
    )
    shows = (
        "What is asked for lies the further back the longer the text: this is retrieval over distance. An encoding "
        "that prefers what is near may lose it, which perplexity would not show."
    )
    options, curves, beyond = PasskeyNumbers, (BY_DISTANCE,), True
    sizes: ClassVar = {"quick": {"steps": 800}, "full": {"needle": 6}}

    def vocabulary(self, config: Config) -> int:
        """The words."""
        return self.numbers(config).words

    def shortest(self, config: Config) -> int:
        """The needle twice, each after a word said twice."""
        return 2 * self.numbers(config).needle + 2

    def chance(self, config: Config) -> float:
        """Any word but the one before and the next."""
        return 1 / (self.numbers(config).words - 2)

    def draw(self, config: Config, length: int, count: int, generator: torch.Generator) -> DrawnSequences:
        """See the module."""
        words, needle = self.numbers(config).words, self.numbers(config).needle
        ask = length - needle
        depth = torch.rand(count, generator=generator).argsort() + torch.rand(count, generator=generator)
        start = 1 + (depth / count * (ask - needle - 1)).long().clamp(max=ask - needle - 2)[:, None]  # a word again
        steps = torch.ones(count, length, dtype=torch.int64)
        steps[:, :1] = torch.randint(words, (count, 1), generator=generator)
        hidden = start + 1 + torch.arange(needle)
        steps.scatter_(1, start, 0).scatter_(1, hidden, torch.randint(2, words, (count, needle), generator=generator))
        tokens = steps.cumsum(1) % words
        key = tokens.gather(1, hidden)
        tokens[:, ask:] = torch.cat([tokens[:, ask - 1 : ask], key[:, :-1]], 1)
        before = torch.zeros(count, ask, dtype=torch.int64)
        distances = (ask - hidden[:, :1]).expand(count, needle)  # the same for all words
        return DrawnSequences(tokens, torch.cat([before + NO_ANSWER, key], 1), torch.cat([before, distances], 1))
