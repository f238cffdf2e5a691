"""Pass keys hidden in the text before the scored tokens, and asked for after them: one prefill serves both.

    text … [The pass key of the red box is 48213. Remember it.] … text … scored … [The pass key of the red box is 48213]

Each window has one key at each depth and asks for all of them at its end; the order of the asking changes from window
to window, so that no depth is always asked last. What was asked before stands there with its right answer.
After Mohtashami and Jaggi, Landmark Attention, arXiv 2305.16300, section 4.2, with several keys, told apart by a
colour, in a text that means something.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from posenc.lab.tasks.batching import counter_seed

COLOURS = ("red", "blue", "green", "black", "white", "brown", "grey", "pink", "orange", "purple")
DIGITS = 5
HIDDEN = "\n\nThe pass key of the {} box is {}. Remember it.\n\n"
ASKED = "\n\nThe pass key of the {} box is "


class Passkey(NamedTuple):
    """One key, as tokens."""

    hidden: list[int]
    asked: list[int]
    answer: list[int]


class Laid(NamedTuple):
    """A window as a model reads it.

    Attributes:
        tokens: ``(length,)``.
        needed: how many of the last ones matter, one before the first that is scored included.
        scored: where the scored ones lie among the predicted ones, which are needed − 1.
        answers: likewise the answers, in the order of depth.
    """

    tokens: Tensor
    needed: int
    scored: slice
    answers: list[slice]


def passkeys(tokens_of: Callable[[str], list[int]], window: int, count: int) -> list[Passkey]:
    """The keys of a window, by depth: a function of its number alone."""
    generator = torch.Generator().manual_seed(counter_seed("passkey", 0, window))
    keys = torch.randint(10, (count, DIGITS), generator=generator)
    colours = torch.randperm(len(COLOURS), generator=generator)
    found = []
    for n in range(count):
        colour, key = COLOURS[int(colours[n])], "".join(map(str, keys[n].tolist()))
        asked = tokens_of(ASKED.format(colour))
        whole = tokens_of(ASKED.format(colour) + key)
        same = next((k for k, (a, b) in enumerate(zip(asked, whole, strict=False)) if a != b), len(asked))
        found.append(Passkey(tokens_of(HIDDEN.format(colour, key)), whole[:same], whole[same:]))
    return found


def depths(count: int) -> list[int]:
    """Where keys are hidden, percent of the text before the scored tokens."""
    return [round(100 * (n + 0.5) / count) for n in range(count)]


def laid(window: Tensor, length: int, scored: int, keys: Sequence[Passkey], turn: int) -> Laid:
    """The last tokens of a window with its keys, ``length`` in all.

    Args:
        window: tokens; the last ``scored`` of them are scored.
        length: tokens that are read.
        scored: how many.
        keys: by depth.
        turn: which of them is asked first.

    Raises:
        ValueError: for a length that has no room.
    """
    order = [(n + turn) % len(keys) for n in range(len(keys))]
    tail, answers = list[int](), dict[int, slice]()
    for n in order:
        start = scored + len(tail) + len(keys[n].asked)
        answers[n] = slice(start, start + len(keys[n].answer))
        tail += keys[n].asked + keys[n].answer
    room = length - scored - len(tail) - sum(len(key.hidden) for key in keys)
    if room < len(keys) + 1:
        raise ValueError(
            f"--scored {scored}: {length} tokens have no room for them and {len(keys)} pass keys; lower --scored or "
            "--needles, or raise --lengths"
        )
    text, last = window[-(scored + room) :], 0
    parts = list[Tensor]()
    for depth, key in zip(depths(len(keys)), keys, strict=True):
        at = depth * room // 100
        parts += [text[last:at], torch.tensor(key.hidden)]
        last = at
    tokens = torch.cat([*parts, text[last:], torch.tensor(tail, dtype=torch.long)])
    return Laid(tokens, scored + len(tail) + 1, slice(0, scored), [answers[n] for n in range(len(keys))])
