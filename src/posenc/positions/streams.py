"""Position ids of mixed streams: text, pictures, videos and sound, as the Qwen-VL models count them (M-RoPE).

    id = s + (t, row, column)    s = 1 + the largest id so far, over all axes; text and sound: t = row = column

A part starts where everything before it ends: 1 + the largest id, not s + max(rows, columns), which lets the text
behind a long video run into it. A frame's t is its number (Qwen2-VL) or trunc(number · seconds · tokens per second),
one product truncated at its end (Qwen2.5-VL, Qwen2.5-Omni). In Qwen3-VL each frame is a picture of its own, t = 0, and
its time is written as text before it; Qwen3.5 counts as Qwen3-VL does. ERNIE 4.5 VL counts as Qwen2-VL does, each two
frames being one.

Source: Wang et al., Qwen2-VL, arXiv 2409.12191, section 2.1; Bai et al., Qwen2.5-VL, arXiv 2502.13923, section 2.1.
Checked against: `get_rope_index` of transformers 4.57.1, Qwen2-VL, Qwen2.5-VL and Qwen3-VL, which are the authors';
    ERNIE 4.5 VL of transformers 5.23.
Departs from the source: nothing; but transformers 4.57.1 truncates seconds before their product, and 5.23 starts text
    after a video at s + max(rows, columns): ``after="side"``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from posenc.arguments import LONGEST, check_choice, shown
from posenc.positions.builders import check_name, register
from posenc.positions.checking import check_coordinates
from posenc.positions.grids import grid
from posenc.positions.parts import Audio, Image, Part, Text, Video, checked
from posenc.positions.validation import count_of, number_of
from posenc.positions.videos import on_all_axes, video

Family = Literal["qwen2-vl", "qwen2.5-vl", "qwen2.5-omni", "qwen3-vl", "qwen3.5", "ernie-4.5-vl"]
After = Literal["largest", "side"]
register("stream", "family", get_args(Family))
AXES = 3  # time, row, column


class Rule(NamedTuple):
    """How a family of models places videos."""

    tokens_per_second: float | None  # ids that a second takes, the released models'; None: time is no matter of ids
    by_frame: bool = False  # whether each frame is a block of its own
    merged: int = 1  # frames that the model merges into one, after its processor has said how many there are


RULES: dict[Family, Rule] = {
    "qwen2-vl": Rule(None),
    "qwen2.5-vl": Rule(2.0),
    "qwen2.5-omni": Rule(25.0),
    "qwen3-vl": Rule(None, by_frame=True),
    "qwen3.5": Rule(None, by_frame=True),
    "ernie-4.5-vl": Rule(None, merged=2),
}


def stream(
    parts: Sequence[Part], *, family: Family, tokens_per_second: float | None = None, after: After = "largest"
) -> Tensor:
    """Position ids ``(tokens, 3)`` of one sequence: (time, row, column).

    Rows of a batch: ``padded([stream(a, …), stream(b, …)])``. Documents in one row: ``packed([…])``. The tokens that a
    model writes after them: `following`.

    Args:
        parts: what the row holds, in order: `Text`, `Image`, `Video`, `Audio`.
        family: whose rules: ``"qwen2-vl"``, ``"qwen2.5-vl"``, ``"qwen2.5-omni"``, ``"qwen3-vl"``, ``"qwen3.5"``,
            ``"ernie-4.5-vl"``.
        tokens_per_second: ids that a second of video takes, in families that look at time. Default that of the released
            models, 2 in Qwen2.5-VL and 25 in Qwen2.5-Omni; it stands in the model's configuration (transformers'
            class of it has 4 where none stands).
        after: what follows a picture or a video begins behind its ``"largest"`` id, as the authors count, or behind its
            larger ``"side"``, as transformers 5 does (not in Qwen2.5-Omni): for a model that was tuned with those ids.

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
    check_after(family, after)
    start, blocks = 0, [torch.zeros(0, AXES, dtype=torch.int64)]
    for part in checked(parts):
        for block in _blocks(part, rule):
            blocks.append(block + start)
            # Where frames lie farther apart in time than a picture is wide, the two rules differ: time is the largest.
            sides = block[:, 1:] if after == "side" and isinstance(part, Image | Video) else block
            start += int(sides.max()) + 1
    return torch.cat(blocks)


def following(positions: Tensor, tokens: int = 1) -> Tensor:
    """Positions of the next tokens of text: 1 + the largest id of each sequence, on all axes, and on from there.

    That is the rule of `stream`. Under a design of `multimodal`, take the last ids of ``[*parts, Text(tokens)]``: text
    then follows the last part, not the largest id of a row (VideoRoPE goes on after time, V2PE after fractions).

    Args:
        positions: ids so far, ``(*batch, tokens, axes)``, one document a row; padding at 0 does no harm.
        tokens: how many more.

    Returns:
        ``(*batch, tokens, axes)``. Hugging Face's ``rope_deltas`` are the first of them minus the row's real tokens.

    >>> following(torch.tensor([[0, 0, 0], [1, 1, 1], [1, 1, 5]]), 2).tolist()
    [[6, 6, 6], [7, 7, 7]]
    """
    check_coordinates(positions, "positions")
    tokens = count_of("tokens", tokens)
    if positions.is_floating_point() or not positions.shape[-2]:
        text = "positions must be integers, as ids of a stream are, of one token or more"
        raise ValueError(f"{text}, got {shown(positions)}")
    last = positions.long().flatten(-2).amax(-1)  # over tokens and axes: a picture's row or column may be the largest
    return on_all_axes(last[..., None] + torch.arange(1, tokens + 1, device=positions.device), positions.shape[-1])


def check_after(family: Family, after: object) -> None:
    """Raise a ValueError for a word that says nothing, and for ids that no code counts."""
    check_choice("after", after, get_args(After))
    if after == "side" and family == "qwen2.5-omni":
        raise ValueError("after must be 'largest' for 'qwen2.5-omni', which transformers counts so too; got 'side'")


def rule_of(family: Family, tokens_per_second: float | None) -> Rule:
    """The rule of a family, with a model's own ids per second if given."""
    check_name("stream", family)
    rule = RULES[family]
    if tokens_per_second is None:
        return rule
    if rule.tokens_per_second is None:
        raise ValueError(f"tokens_per_second must not be given: {family} does not look at time")
    return rule._replace(tokens_per_second=float(number_of("tokens_per_second", tokens_per_second, above=0)))


def _blocks(part: Part, rule: Rule) -> Iterator[Tensor]:
    """Ids of a part's blocks, each counted from 0."""
    if isinstance(part, Text | Audio):
        yield from _text(part)
    elif isinstance(part, Image):
        yield grid(1, part.height, part.width)
    elif rule.by_frame:
        gaps = repeat(part.between, part.frames - 1) if isinstance(part.between, int) else part.between
        yield grid(1, part.height, part.width)
        for gap in gaps:
            yield from _text(Text(gap))
            yield grid(1, part.height, part.width)
    else:
        if part.between if isinstance(part.between, int) else any(part.between):
            raise ValueError("between must be 0: only in qwen3-vl there is text between the frames of a video")
        yield video(part.frames, part.height, part.width, times=_frame_ids(part, rule))


def _text(part: Text | Audio) -> Iterator[Tensor]:
    if part.tokens:
        yield on_all_axes(torch.arange(part.tokens), AXES)


def _frame_ids(part: Video, rule: Rule) -> Tensor:
    """Where frames lie in time; the products in float32 and in this order, as in the authors' code."""
    index = torch.arange(part.frames)
    if rule.tokens_per_second is None:
        return index
    if part.frames * part.seconds_per_grid * rule.tokens_per_second > LONGEST:
        text = "seconds_per_grid and tokens_per_second give ids beyond 2^53"
        raise ValueError(f"{text}, got {part.seconds_per_grid} and {rule.tokens_per_second} for {part.frames} frames")
    return (index.float() * float(part.seconds_per_grid) * rule.tokens_per_second).long()
