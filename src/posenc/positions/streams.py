"""Position ids of mixed streams: text, pictures, videos and sound, as the Qwen-VL models count them (M-RoPE).

    id = s + (t, row, column)    s = 1 + the largest id so far, over all axes; text and sound: t = row = column

A part starts where everything before it ends: 1 + the largest id, not s + max(rows, columns), which lets the text
behind a long video run into it. A frame's t is its number (Qwen2-VL) or trunc(number · seconds · tokens per second),
one product truncated at its end (Qwen2.5-VL, Qwen2.5-Omni). In Qwen3-VL each frame is a picture of its own, t = 0, and
its time is written as text before it.

Source: Wang et al., Qwen2-VL, arXiv 2409.12191, section 2.1; Bai et al., Qwen2.5-VL, arXiv 2502.13923, section 2.1.
Checked against: `get_rope_index` of transformers 4.57.1, Qwen2-VL, Qwen2.5-VL and Qwen3-VL, which are the authors'.
Departs from the source: nothing; but transformers 4.57.1 truncates seconds before their product, and 5.23 starts text
    after a video at s + max(rows, columns).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from posenc.positions.checking import check_coordinates
from posenc.positions.grids import grid
from posenc.positions.videos import on_all_axes, video

Family = Literal["qwen2-vl", "qwen2.5-vl", "qwen2.5-omni", "qwen3-vl"]
AXES = 3  # time, row, column


class Rule(NamedTuple):
    """How a family of models places videos."""

    tokens_per_second: float | None  # ids that a second takes, the released models'; None: time is no matter of ids
    by_frame: bool  # whether each frame is a block of its own


RULES: dict[Family, Rule] = {
    "qwen2-vl": Rule(None, by_frame=False),
    "qwen2.5-vl": Rule(2.0, by_frame=False),
    "qwen2.5-omni": Rule(25.0, by_frame=False),
    "qwen3-vl": Rule(None, by_frame=True),
}


class Text(NamedTuple):
    """Tokens of text, special ones included."""

    tokens: int


class Audio(NamedTuple):
    """Tokens of sound, which count on as text does (Qwen2.5-Omni: one each 40 ms, 25 ids per second)."""

    tokens: int


class Image(NamedTuple):
    """A picture of ``height · width`` tokens, as the language model sees it: after merging."""

    height: int
    width: int


class Video(NamedTuple):
    """A video of ``frames · height · width`` tokens, as the language model sees it: after merging.

    ``seconds_per_grid`` are the seconds from one frame to the next (Qwen2.5-VL, Qwen2.5-Omni; others do not look at
    them). ``between`` are tokens of text between two frames, the same number or one number a gap (Qwen3-VL alone: end
    of a frame, the time of the next, its start).
    """

    frames: int
    height: int
    width: int
    seconds_per_grid: float = 1.0
    between: int | Sequence[int] = 0


Part = Text | Audio | Image | Video


def stream(parts: Sequence[Part], *, family: Family, tokens_per_second: float | None = None) -> Tensor:
    """Position ids ``(tokens, 3)`` of one row: (time, row, column).

    Rows of a batch: ``padded([stream(a, …), stream(b, …)])``. Documents in one row: ``packed([…])``. The tokens that a
    model writes after them: `following`.

    Args:
        parts: what the row holds, in order: `Text`, `Image`, `Video`, `Audio`.
        family: whose rules: ``"qwen2-vl"``, ``"qwen2.5-vl"``, ``"qwen2.5-omni"`` or ``"qwen3-vl"``.
        tokens_per_second: ids that a second of video takes, in families that look at time. Default that of the released
            models, 2 in Qwen2.5-VL and 25 in Qwen2.5-Omni; it stands in the model's configuration.

    >>> stream([Text(2), Image(1, 2), Text(1)], family="qwen2-vl").T
    tensor([[0, 1, 2, 2, 4],
            [0, 1, 2, 2, 4],
            [0, 1, 2, 3, 4]])
    >>> stream([Video(3, 1, 1, seconds_per_grid=0.7), Text(1)], family="qwen2.5-vl").T
    tensor([[0, 1, 2, 3],
            [0, 0, 0, 3],
            [0, 0, 0, 3]])
    """
    rule = rule_of(family, tokens_per_second)
    start, found = 0, [torch.zeros(0, AXES, dtype=torch.int64)]
    for part in parts:
        for block in _blocks(part, rule):
            found.append(block + start)
            start = int(found[-1].max()) + 1
    return torch.cat(found)


def following(positions: Tensor, tokens: int = 1) -> Tensor:
    """Positions of the next tokens of text: 1 + the largest id of each row, on all axes, and on from there.

    Args:
        positions: ids so far, ``(*batch, tokens, axes)``, one document a row; padding at 0 does no harm.
        tokens: how many more.

    Returns:
        ``(*batch, tokens, axes)``. Hugging Face's ``rope_deltas`` are the first of them minus the row's real tokens.

    >>> following(torch.tensor([[0, 0, 0], [1, 1, 1], [1, 1, 5]]), 2).tolist()
    [[6, 6, 6], [7, 7, 7]]
    """
    check_coordinates(positions)
    if tokens < 1:
        raise ValueError(f"tokens must be at least 1, got {tokens}")
    if positions.is_floating_point():
        raise ValueError(f"positions must be integers, as ids of a stream are, got {positions.dtype}")
    last = positions.long().flatten(-2).amax(-1)
    return on_all_axes(last[..., None] + torch.arange(1, tokens + 1, device=positions.device), positions.shape[-1])


def rule_of(family: Family, tokens_per_second: float | None) -> Rule:
    """The rule of a family, with a model's own ids per second if given."""
    if family not in get_args(Family):
        raise ValueError(f"family must be one of {get_args(Family)}, got {family!r}")
    rule = RULES[family]
    if tokens_per_second is None:
        return rule
    if rule.tokens_per_second is None:
        raise ValueError(f"tokens_per_second must not be given: {family} does not look at time")
    if not tokens_per_second > 0:
        raise ValueError(f"tokens_per_second must be above 0, got {tokens_per_second}")
    return rule._replace(tokens_per_second=float(tokens_per_second))


def _blocks(part: Part, rule: Rule) -> Iterator[Tensor]:
    """Ids of a part's blocks, each counted from 0."""
    if isinstance(part, Text | Audio):
        yield from _text(part)
    elif isinstance(part, Image):
        yield grid(1, part.height, part.width)
    elif not isinstance(part, Video):
        raise ValueError(f"parts must be Text, Image, Video or Audio, got {type(part).__name__}")
    elif rule.by_frame:
        for frame, gap in enumerate([0, *_between(part)]):
            yield from _text(Text(gap)) if frame else ()
            yield grid(1, part.height, part.width)
    else:
        if any(_between(part)):
            raise ValueError("between must be 0: only in qwen3-vl there is text between the frames of a video")
        yield video(part.frames, part.height, part.width, times=_frame_ids(part, rule))


def _text(part: Text | Audio) -> Iterator[Tensor]:
    if part.tokens < 0:
        raise ValueError(f"tokens must not be negative, got {part.tokens}")
    if part.tokens:
        yield on_all_axes(torch.arange(part.tokens), AXES)


def _between(part: Video) -> list[int]:
    """Tokens of text before each frame but the first."""
    if part.frames < 1:
        raise ValueError(f"frames must be at least 1, got {part.frames}")
    gaps = part.frames - 1
    found = [part.between] * gaps if isinstance(part.between, int) else list(part.between)
    if len(found) != gaps:
        raise ValueError(f"between must be one number, or one for each of {gaps} gaps, got {len(found)}")
    return found


def _frame_ids(part: Video, rule: Rule) -> Tensor:
    """Where frames lie in time; the products in float32 and in this order, as in the authors' code."""
    index = torch.arange(part.frames)
    if rule.tokens_per_second is None:
        return index
    if not part.seconds_per_grid >= 0:
        raise ValueError(f"seconds_per_grid must not be negative, got {part.seconds_per_grid}")
    return (index.float() * float(part.seconds_per_grid) * rule.tokens_per_second).long()
