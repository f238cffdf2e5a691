"""Position ids of mixed streams from what a model is fed: token ids, and the grids of its pictures and videos."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from posenc.arguments import LONGEST, WIDEST, check_several, shown
from posenc.positions.parts import Image, Part, Text, Video
from posenc.positions.streams import AXES, After, Family, Rule, check_after, rule_of, stream
from posenc.positions.validation import check_rows, count_of, is_whole, number_of, table_of

_TEXT, _IMAGE, _VIDEO = 0, 1, 2


def from_token_ids(
    input_ids: Tensor,
    *,
    family: Family,
    image_token: int | None = None,
    video_token: int | None = None,
    image_grid_thw: Tensor | Sequence[Sequence[int]] | None = None,
    video_grid_thw: Tensor | Sequence[Sequence[int]] | None = None,
    seconds_per_grid: Tensor | Sequence[float] | None = None,
    mask: Tensor | None = None,
    segments: Tensor | None = None,
    merge: int = 2,
    tokens_per_second: float | None = None,
    after: After = "largest",
) -> Tensor:
    """Position ids of sequences of token ids, as `stream` counts them; pictures and videos in the batch's order.

    Any token that is no picture's and no video's is text; sound counts as text does. For Qwen2.5-Omni's videos with
    their sound between their frames this is not the rule.

    Args:
        input_ids: integers ``(tokens,)`` or ``(batch, tokens)``, with a token for each merged patch.
        family: whose rules; see `stream`.
        image_token, video_token: the ids that stand for patches of pictures and of videos.
        image_grid_thw, video_grid_thw: ``(pictures, 3)`` and ``(videos, 3)``: frames, rows and columns before merging,
            as Hugging Face's processors give them. ERNIE 4.5 VL merges the frames of a video, by two.
        seconds_per_grid: ``(videos,)``, seconds from one frame to the next; default 1.
        mask: as input_ids, True or 1 at real tokens, as Hugging Face's ``attention_mask``. Padding gets 0.
        segments: as input_ids, equal numbers at neighbouring tokens of one document; each document starts at 0.
        merge: patches along rows and along columns that make one token.
        tokens_per_second, after: see `stream`.

    Returns:
        ``(*batch, tokens, 3)``: (time, row, column), on the device of input_ids.

    >>> ids = torch.tensor([7, 7, 1, 1, 7])
    >>> from_token_ids(ids, family="qwen2-vl", image_token=1, image_grid_thw=[[1, 2, 4]]).T
    tensor([[0, 1, 2, 2, 4],
            [0, 1, 2, 2, 4],
            [0, 1, 2, 3, 4]])
    """
    check_rows("input_ids", input_ids, "integers (tokens,) or (batch, tokens)", integers=True)
    rule = rule_of(family, tokens_per_second)
    check_after(family, after)
    ids = _rows(input_ids)
    real, parts = _like("mask", mask, input_ids), _like("segments", segments, input_ids)
    merge = count_of("merge", merge, most=WIDEST)
    images = _sizes("image_grid_thw", image_grid_thw, merge, ids.numel())
    videos = _sizes("video_grid_thw", video_grid_thw, merge, ids.numel(), frames_merged=rule.merged)
    sights = _Sights.of(images, videos, _seconds(seconds_per_grid, len(videos)), rule)
    kinds = torch.full_like(ids, _TEXT, dtype=torch.int64)
    for kind, name, token in ((_IMAGE, "image_token", image_token), (_VIDEO, "video_token", video_token)):
        if token is not None:
            kinds = torch.where(ids == count_of(name, token, least=-LONGEST, most=LONGEST), kind, kinds)
    rows = []
    for row in range(len(ids)):
        here = torch.arange(ids.shape[1]) if real is None else real[row].bool().nonzero().flatten()
        of_row = kinds[row, here]
        documents = [slice(0, len(here))] if parts is None else [where for where, _ in _runs(parts[row, here])]
        of_documents = [
            stream(list(_parts(of_row[where], sights)), family=family, tokens_per_second=tokens_per_second, after=after)
            for where in documents
        ]
        of_documents = [torch.zeros(0, AXES, dtype=torch.int64), *of_documents]  # a row may be padding alone
        rows.append(torch.zeros(ids.shape[1], AXES, dtype=torch.int64).index_copy(0, here, torch.cat(of_documents)))
    sights.check_used_up()
    return torch.stack(rows).view(*input_ids.shape, AXES).to(input_ids.device)


class _Sights(NamedTuple):
    """Pictures and videos that have not come yet, sizes in merged tokens."""

    images: deque[Image]
    videos: deque[Video]

    @classmethod
    def of(
        cls,
        images: list[tuple[int, int, int]],
        videos: list[tuple[int, int, int]],
        seconds: list[float],
        rule: Rule,
    ) -> _Sights:
        if any(frames != 1 for frames, _, _ in images):
            raise ValueError(f"image_grid_thw must have 1 frame a picture, got {[frames for frames, _, _ in images]}")
        timed = [Video(*size, second) for size, second in zip(videos, seconds, strict=True)]
        if rule.by_frame:  # text may stand between any two frames
            timed = [video._replace(frames=1) for video in timed for _ in range(video.frames)]
        return cls(deque(Image(height, width) for _, height, width in images), deque(timed))

    def check_used_up(self) -> None:
        """Raise a ValueError where grids are left that no token stood for."""
        for name, left in (("image_grid_thw", self.images), ("video_grid_thw", self.videos)):
            if left:
                raise ValueError(f"{name} holds {len(left)} more than input_ids have tokens for: {[*left]}")


def _parts(kinds: Tensor, sights: _Sights) -> Iterator[Part]:
    """What one document holds, from the kinds ``(tokens,)`` of its tokens."""
    for where, kind in _runs(kinds):
        count = where.stop - where.start
        if kind == _TEXT:
            yield Text(count)
        elif kind == _IMAGE:
            yield from _run("image", sights.images, count)
        else:
            yield from _run("video", sights.videos, count)


def _runs(numbers: Tensor) -> list[tuple[slice, int]]:
    """Where equal numbers stand side by side, and the number."""
    # A run ends where the next number differs; pictures side by side are one run, which `_run` divides by grids.
    ends = [*((numbers.diff() != 0).nonzero().flatten() + 1).tolist(), len(numbers)]
    starts = [0, *ends[:-1]]
    return [(slice(start, end), int(numbers[start])) for start, end in zip(starts, ends, strict=True) if start < end]


def _run(name: str, waiting: deque[Image] | deque[Video], count: int) -> Iterator[Part]:
    """The next pictures or videos, as many as stand in a run of ``count`` tokens."""
    left = count
    while left:
        size = _tokens(waiting[0]) if waiting else 0
        if not waiting or size > left:
            expected = f"{size} for the next one" if waiting else "none: all grids are used up"
            raise ValueError(
                f"{name}_grid_thw does not fit input_ids: {left} tokens left in a run of {count}, expected {expected}"
            )
        yield waiting.popleft()
        left -= size


def _tokens(sight: Image | Video) -> int:
    return sight.height * sight.width * (sight.frames if isinstance(sight, Video) else 1)


def _sizes(
    name: str, grids: Tensor | Sequence[Sequence[int]] | None, merge: int, tokens: int, *, frames_merged: int = 1
) -> list[tuple[int, int, int]]:
    """(frames, rows, columns) of each grid, in merged tokens; ``tokens`` are all that there are."""
    if grids is None:
        return []
    expected = "integers (number, 3): frames, rows, columns"
    table = table_of(name, grids, expected)
    if table.ndim != 2 or table.shape[1] != 3 or not is_whole(table):
        raise ValueError(f"{name} must be {expected}, got {shown(table)}")
    sizes = []
    for frames, height, width in table.tolist():
        if frames > frames_merged * tokens:
            raise ValueError(f"{name} must fit input_ids: {frames} frames are more than their {tokens} tokens")
        if frames % frames_merged:
            raise ValueError(f"{name} must hold multiples of {frames_merged} frames, got {frames}: they merge")
        if min(frames, height, width) < 1 or height % merge or width % merge:
            raise ValueError(
                f"{name} must hold rows and columns that are multiples of merge = {merge}, got {table.tolist()}"
            )
        sizes.append((frames // frames_merged, height // merge, width // merge))
    return sizes


def _like(name: str, tensor: Tensor | None, input_ids: Tensor) -> Tensor | None:
    """A tensor of the shape of input_ids, as rows on the host."""
    if tensor is None:
        return None
    if not isinstance(tensor, Tensor) or tensor.shape != input_ids.shape:
        got = tuple(tensor.shape) if isinstance(tensor, Tensor) else shown(tensor)
        raise ValueError(f"{name} must be as input_ids, {tuple(input_ids.shape)}, got {got}")
    return _rows(tensor)


def _rows(tensor: Tensor) -> Tensor:
    """``(batch, tokens)`` on the host."""
    rows = tensor.detach().cpu()
    return rows[None] if rows.ndim == 1 else rows


def _seconds(seconds: Tensor | Sequence[float] | None, videos: int) -> list[float]:
    """Seconds from one frame to the next, of each video."""
    if seconds is None:
        return [1.0] * videos
    values = [number_of("seconds_per_grid", value, least=0) for value in check_several("seconds_per_grid", seconds)]
    if len(values) != videos:
        raise ValueError(f"seconds_per_grid must hold one number for each of {videos} videos, got {values}")
    return values
