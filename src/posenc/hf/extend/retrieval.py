"""Retrieval before and after an extension: one fact hidden in a text, in the manner of RULER, asked for at its end.

The extended model reads texts of the new length; the control is the model before, which gets the end of the same text,
as many tokens as it was trained on, so that it misses facts that lie further back. At the training length both read the
whole text: the difference is the price of the extension. Prompts are the same for both models, so that the difference
has a paired interval (`posenc.evaluation.statistics.paired_shares`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn

from posenc.evaluation.generate import end_tokens_of, generate
from posenc.evaluation.likelihood import evenly_spaced_pieces
from posenc.evaluation.retrieval import (
    Kind,
    Prompt,
    build_prompt,
    draw_task,
    encode,
    ends_sentence,
    score,
    special_prefix,
)
from posenc.evaluation.statistics import paired_shares, share_interval

KIND: Kind = "niah_single"
ANSWER_TOKENS = 32  # its answer is a number of seven digits
_DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)


@dataclass(frozen=True)
class Retrieval:
    """Which prompts of one length were answered correctly.

    Attributes:
        before: by the model before; beyond the training length with the text cut to that.
        after: by the extended model.
        cut: whether the model before got the end of the text alone.
    """

    before: tuple[bool, ...]
    after: tuple[bool, ...]
    cut: bool

    def sentence(self, length: int, original: int) -> str:
        """The comparison in words, with its interval."""
        difference, count = paired_shares(self.after, self.before), len(self.after)
        share = share_interval(sum(self.after), count)
        control = f"the model before with the last {original:,} tokens alone" if self.cut else "the model before"
        if difference.low > 0:
            words = "better than before the extension"
        elif difference.high < 0:
            words = "worse than before the extension"
        else:
            words = "inconclusive: the interval contains 0; more prompts would narrow it (--retrieval)"
        return (
            f"Retrieval at {length:,} tokens: {sum(self.after)} of {count} facts "
            f"({share.low:.0%} to {share.high:.0%}), {sum(self.before)} by {control}: "
            f"{100 * difference.mean:+.0f} points, 95 % interval {100 * difference.low:+.0f} to "
            f"{100 * difference.high:+.0f}, {words}."
        )


class RetrievalTask:
    """The prompts of an extension.

    Args:
        tokens: the text in which facts are hidden.
        tokenizer: of the model.
        original, length: training length and new context length, in tokens.
        count: prompts of each length.

    Raises:
        ValueError: without a tokenizer, and for lengths without room for a prompt.
    """

    def __init__(self, tokens: Tensor, tokenizer: Any, *, original: int, length: int, count: int) -> None:
        if tokenizer is None:
            raise ValueError("retrieval: questions are text, and the model comes without a tokenizer: give one, or 0")
        self.tokenizer, self.original, self.count = tokenizer, original, count
        self.lengths = (original, length)
        self._prefix = special_prefix(tokenizer)
        self._prompts = {n: self._build(tokens, n) for n in self.lengths}

    def _build(self, tokens: Tensor, length: int) -> list[Prompt]:
        pieces = evenly_spaced_pieces(tokens, length, self.count)
        return [
            build_prompt(
                draw_task(KIND, n), pieces[n % len(pieces)].tolist(), length, _DEPTHS[n % len(_DEPTHS)],
                encode=partial(encode, self.tokenizer), ends=partial(ends_sentence, self.tokenizer),
                seed=n, prefix=self._prefix, answer_tokens=ANSWER_TOKENS,
            )
            for n in range(self.count)
        ]  # fmt: skip

    def readings(self) -> Mapping[int, int]:
        """How many prompts of each length both models read in all."""
        return {self.original: 3 * self.count, self.lengths[1]: self.count}

    def read_length(self, length: int, *, extended: bool) -> int:
        """How many tokens of a prompt of this length a model reads."""
        return length if extended else min(length, self.original)

    def answers(self, model: nn.Module, number: int, length: int, *, extended: bool) -> bool:
        """Whether a model answers one prompt correctly."""
        prompt = self._prompts[length][number]
        room = self.original - ANSWER_TOKENS - len(prompt.before) - len(prompt.question)
        text = prompt.text if extended else prompt.text[-room:]
        expected = prompt.task.expected

        def complete(tokens: list[int]) -> bool:
            return score(self._decode(tokens), expected) == 1

        generation = generate(
            model, prompt.window(text), ANSWER_TOKENS, stop=complete, end_tokens=end_tokens_of(model, self.tokenizer)
        )
        return complete(generation.tokens)

    def _decode(self, tokens: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(tokens, skip_special_tokens=True)
        return text
