"""The tests: how many answers are right at each length, and where in the longest sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypedDict

import torch
from torch import Tensor

from posenc.lab.sequences.puzzle import UNASKED, Drawn
from posenc.lab.text.measure import batches_within

Logits = Callable[[Tensor, Tensor | None], Tensor]  # tokens and ids (batch, length) to (batch, length, vocabulary)


class Measurement(TypedDict):
    """What a model answered, for each length; None where the model is undefined."""

    answers: list[float | None]  # the share of answers that are right
    whole: list[float | None]  # the share of sequences with all answers right
    wrong: list[list[int] | None]  # the number of wrong answers in each sequence
    asked: list[int | None]  # the number of answers that were asked for in all sequences together


@torch.no_grad()
def measure(
    logits: Logits,
    tests: Sequence[Drawn],
    *,
    ids_of: Callable[[Tensor], Tensor | None] = lambda tokens: None,
    reach: Callable[[int], bool] = lambda length: True,
    heads: int = 1,
    device: torch.device | str = "cpu",
    on_forward: Callable[[float], None] = lambda share: None,
) -> Measurement:
    """Ask a model all tests. The most likely of all tokens is its answer; it is shown the right ones before.

    Args:
        logits: the model, in evaluation mode and float32.
        tests: by length.
        ids_of: ids of digits from tokens, where there are any.
        reach: whether the model is defined at a length.
        heads: of the model's attention, to bound the memory of a forward.
        device: of the model.
        on_forward: told after each forward which share of the work is done.
    """
    defined = [test for test in tests if reach(test.tokens.shape[1])]
    work, done = sum(_work(test.tokens) for test in defined), 0.0  # attention grows with the square, the rest does not
    found: Measurement = {"answers": [], "whole": [], "wrong": [], "asked": []}
    for test in tests:
        if not reach(test.tokens.shape[1]):
            for column in (found["answers"], found["whole"], found["wrong"], found["asked"]):
                column.append(None)
            continue
        right = []
        for rows in batches_within(range(len(test.tokens)), test.tokens.shape[1], heads):
            tokens = test.tokens[rows]
            ids = ids_of(tokens)
            said = logits(tokens.to(device), None if ids is None else ids.to(device)).argmax(-1).cpu()
            right.append(said == test.answers[rows])
            done += _work(tokens) / work
            on_forward(min(1.0, done))
        due = test.answers != UNASKED
        wrong, asked = (due & ~torch.cat(right)).sum(1), int(due.sum())
        found["answers"].append(1 - int(wrong.sum()) / asked)
        found["whole"].append((wrong == 0).double().mean().item())
        found["wrong"].append(wrong.tolist())
        found["asked"].append(asked)
    return found


def _work(tokens: Tensor) -> int:
    count, length = tokens.shape
    return count * length * (length + 1024)
