"""Needle documents: a long text with a number at its beginning that is asked for at its end, and the number itself.

    instruction · needle · text · question · number            exactly as many tokens as wanted; the number is scored

The loss of the number's tokens alone is LongRoPE2's measure of how well a model reads a whole context: a mean over all
tokens is dominated by those that need no distant context. Perplexity is exp(loss).

Source: Shang et al., LongRoPE2, arXiv 2502.20082, section 3.2 (needle perplexity) and appendix C (a sample: seven
    digits at the beginning of a book, the question at its end). The authors take 10 books of PG-19's validation set.
Departs from the source: the sentences come from `posenc.evaluation.retrieval`, the texts from the caller.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

from torch import Tensor

from posenc.evaluation.likelihood import evenly_spaced_pieces
from posenc.evaluation.retrieval import Kind, build_prompt, draw_task, encode, ends_sentence, special_prefix

KIND: Kind = "niah_single"
_AT_THE_BEGINNING = 0.0


class ScoredText(NamedTuple):
    """A text of which the last tokens are scored.

    Attributes:
        tokens: ``(tokens,)``, int64.
        last: how many tokens at the end are scored.
    """

    tokens: Tensor
    last: int


def needle_documents(text: Tensor, tokenizer: Any, length: int, count: int) -> list[ScoredText]:
    """Needle documents of ``length`` tokens in pieces of a text; document n hides another number than the others.

    Args:
        text: tokens ``(tokens,)``; the pieces are spread over it evenly.
        tokenizer: of the model.
        length: tokens of a document, instruction, question and number included.
        count: of documents; fewer where the text is too short for pieces that differ.

    Raises:
        ValueError: without a tokenizer, for a text shorter than a document, and for a length without room.
    """
    if tokenizer is None:
        raise ValueError("needle documents are text, and the model comes without a tokenizer: give one")
    return [
        _needle_document(piece, tokenizer, length, number)
        for number, piece in enumerate(evenly_spaced_pieces(text, length, count))
    ]


def _needle_document(piece: Tensor, tokenizer: Any, length: int, number: int) -> ScoredText:
    task = draw_task(KIND, number)
    # Question and answer are encoded together, as a model would read them: a tokenizer may join a space and a digit.
    answered = replace(task, question=f"{task.question} {task.expected[0]}")
    prompt = build_prompt(
        answered, piece.tolist(), length, _AT_THE_BEGINNING, encode=partial(encode, tokenizer),
        ends=partial(ends_sentence, tokenizer), seed=number, prefix=special_prefix(tokenizer), answer_tokens=0,
    )  # fmt: skip
    pairs = zip(prompt.question, encode(tokenizer, task.question), strict=False)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return ScoredText(prompt.tokens, len(prompt.question) - shared)
