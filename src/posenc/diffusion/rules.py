"""Positions in diffusion transformers: where text, picture, frames and reference pictures stand on their axes.

A model's record says where in words (``MODELS[name].where``). What these words leave open:

    qwen-image-layered  text begins as in qwen-image, but not before the number of the last picture
    cogvideox, easyanimate, hunyuan-dit               rows and columns from `start` to `stop · (n − 1) / n` of that part
                        of the trained grid which has the shape of the picture
    mochi               (i + ½ − n/2) · √(192² / (H · W)) for rows and columns
    ltx                 2 f − 1 with f = (8 frame / fps / 20, 32 row / 2048, 32 column / 2048)
    ltx-2               the same of the middle of a token, frames from max(8 i − 7, 0) to 8 i + 1; sound has one axis
    minimax-h3          frames at T + 5/3 · (0, 1, 5, 9, 13, 17, 18, …), rows and columns as far out as √(H / W) and
                        √(W / H); pictures that are to be its first or last frame at T, or at the end less 5/3

n numbers the pictures, l the tokens of the text, from 0; T = tokens of text. Sizes are those of the latent patches, as
the transformer receives them. Where no place of the text is named, it has none: it is not rotated, or is not in this
sequence. Z-Image pads captions to a multiple of 32, and the padding counts: give the padded length.

Source: diffusers 0.42, models/embeddings.py, models/transformers/transformer_*.py, and the pipelines (Flux 3 and
    MiniMax-H3: modular_pipelines) that number text and pictures for them. Wan: arXiv 2503.20314; HunyuanVideo: arXiv
    2412.03603; Qwen-Image: arXiv 2508.02324; Lumina-Image 2: arXiv 2503.21758; CogVideoX: arXiv 2408.06072; LTX-Video:
    arXiv 2501.00103; Cosmos: arXiv 2501.03575; Stable Diffusion 3: arXiv 2403.03206.
Checked against: the position modules of these files, and the pipelines' counting where no module counts.
Departs from the source: nothing; a model that gives text no rotation has it without a place here. Positions that
    diffusers computes in float32 (LTX, CogVideoX, HunyuanDiT, Mochi) are float64 here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from posenc.arguments import check_choice, check_several, check_whole, shown
from posenc.diffusion.models import Model, ModelName, record_of
from posenc.positions.builders import taken_elsewhere
from posenc.positions.checking import NO_POSITION
from posenc.positions.grids import affine, floored, grid
from posenc.positions.parts import Audio, Image, Part, Text, Video, checked
from posenc.positions.validation import Sizes, number_of, numbers, sizes_of

Keyframe = Literal["first", "last"]


class _Row(NamedTuple):
    """The parts of one row and the numbers that its model's rule reads.

    Attributes:
        words: tokens of text in all.
        grids: frames, rows and columns of the pictures and videos, in their order.
        fps, trained, table, scale, frames, keyframes: see `latents`; None where the model does not read them.
    """

    parts: Sequence[Part]
    words: int
    grids: Sequence[tuple[int, int, int]]
    fps: float | None
    trained: tuple[int, ...]
    table: int
    scale: tuple[float, ...]
    frames: Sequence[int] | None
    keyframes: Sequence[str]  # of each picture and video, "" for videos


Place = Callable[[Tensor, int, "_Row"], Tensor]  # (tokens, 3) of a counted grid, the picture's number: its coordinates
Words = Callable[[Tensor, "_Row"], Tensor]  # numbers (tokens,) of text: their coordinates


class Rule(NamedTuple):
    """Where a model's tokens stand, as functions; the model's record has the words and numbers.

    Attributes:
        picture, text: coordinates of a picture's and of text's tokens; text None: it has no place.
        sound: coordinates of sound's tokens, given their numbers ``(tokens,)`` and the number of the sound; None: none.
        whole_row: in place of these three, all parts at once.
    """

    picture: Place
    text: Words | None = None
    sound: Place | None = None
    whole_row: Callable[[_Row], list[Tensor]] | None = None


def latents(
    parts: Sequence[Part],
    *,
    model: ModelName,
    fps: float | None = None,
    trained: Sizes | None = None,
    table: int | None = None,
    scale: float | Sequence[float] | None = None,
    frames: Sequence[int] | None = None,
    keyframes: Sequence[Keyframe] | None = None,
) -> Tensor:
    """Positions ``(tokens, axes)`` of the tokens of one row, in the order of its parts.

    int64 where the model counts, float64 where it measures. Sound of LTX-2 has one axis: ``(tokens,)``, by itself.

    Args:
        parts: `Text`, `Image` (the first is the one that is made, others are references) and `Video`.
        model: whose rules, see the module; `preset` has their encodings.
        fps: frames per second of "cosmos" (default: pictures, frames by number), "ltx" (25) and "ltx-2" (24).
        trained: tokens along rows and columns of the grid of training: "cogvideox" and "easyanimate" (30, 45),
            "hunyuan-dit" 32, "cogview-4" 256, "mochi" 192, "sd3" and "pixart" 64.
        table: rows of the square table of "sd3", from whose middle a picture is cut: 192, in 3.5 medium 384. Of
            "bria-fibo-2" the most gist tokens, 512.
        scale: divides coordinates, one number or one an axis: "flux-3" (1, 2, 2, 1), "cogvideox-2b" (1, 1.875, 1.875),
            "pixart" 2, "kandinsky-5" 1 (videos of 480p: (1, 2, 2)), "kandinsky-6" (1, 2, 2), "allegro" (2.2, 2, 2),
            "lumina-next" 1.
        frames: the numbers of a video's frames, of "framepack" and "helios".
        keyframes: which frame of the video each picture is to be, "first" or "last", of "minimax-h3"; default the
            first. Its references, which have a clock of their own, are not built here.

    Raises:
        ValueError: for an unknown model, an option that it does not read, sound where there is none, and for more
            than one picture where the model takes one.

    >>> from posenc.positions import Image, Text
    >>> latents([Text(2), Image(1, 2)], model="flux-1").tolist()
    [[0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 1]]
    >>> latents([Image(2, 2), Text(1)], model="qwen-image").tolist()
    [[0, -1, -1], [0, -1, 0], [0, 0, -1], [0, 0, 0], [1, 1, 1]]
    """
    taken_elsewhere("model", model)
    record, parts = record_of(model), checked(parts)
    rule, axes = RULES[model], len(record.axes)
    options: dict[str, Any] = {"fps": fps, "trained": trained, "table": table, "scale": scale, "frames": frames}
    options["keyframes"] = keyframes
    for name, value in options.items():
        if value is not None and name not in record.takes:
            reads = ", ".join(record.takes) or "no option"
            raise ValueError(f"{name} must not be given for {model!r}, which reads {reads}; got {shown(value)}")
    _check_parts(parts, record, rule, model)
    values = {name: record.takes.get(name) if value is None else value for name, value in options.items()}
    row = _row(parts, axes, values, model)
    if rule.whole_row is not None:
        return _joined(rule.whole_row(row), axes)
    blocks, words, pictured, sounded = [], 0, 0, 0
    for part in parts:
        if isinstance(part, Text):
            numbers_ = torch.arange(words, words + part.tokens)
            blocks.append(_nowhere(axes, part.tokens) if rule.text is None else rule.text(numbers_, row))
            words += part.tokens
        elif isinstance(part, Audio):
            assert rule.sound is not None
            blocks.append(rule.sound(torch.arange(part.tokens), sounded, row))
            sounded += 1
        else:
            blocks.append(rule.picture(grid(*row.grids[pictured]), pictured, row))
            pictured += 1
    return _joined(blocks, axes)


def _check_parts(parts: Sequence[Part], record: Model, rule: Rule, model: str) -> None:
    """Raise a ValueError for parts that the model does not have in a row."""
    pictures = [part for part in parts if isinstance(part, Image | Video)]
    sounds = [part for part in parts if isinstance(part, Audio)]
    if sounds and rule.sound is None:
        raise ValueError(f"parts must be Text, Image or Video for {model!r}, got Audio")
    if sounds and model == "ltx-2" and len(sounds) != len(parts):
        raise ValueError("parts must be sound alone, or no sound, for 'ltx-2', whose sound has rows of one axis")
    if record.one_picture and len(pictures) > 1:
        raise ValueError(f"parts must have one picture for {model!r}, got {len(pictures)}")
    if record.text_elsewhere and any(isinstance(part, Text) for part in parts):
        raise ValueError(f"parts must have no Text for {model!r}: {record.text_elsewhere}")


def _row(parts: Sequence[Part], axes: int, options: Mapping[str, Any], model: str) -> _Row:
    """The options checked, next to the parts."""
    pictures = [part for part in parts if isinstance(part, Image | Video)]
    grids = [(part.frames if isinstance(part, Video) else 1, part.height, part.width) for part in pictures]
    numbered = options["frames"]
    if numbered is not None:
        numbered = check_several("frames", numbered)
        for number in numbered:
            check_whole("frames", number, least=0)
        if not grids or len(numbered) != grids[0][0]:
            raise ValueError(
                f"frames must number the frames of the video in parts, got {shown(numbered)} for {shown(parts)}"
            )
    table = options["table"]
    if table is not None:
        check_whole("table", table)
        if model == "sd3" and grids and max(grids[0][1:]) > table:
            raise ValueError(f"table must be at least as large as the picture {grids[0][1:]}, got {table}")
    images = sum(isinstance(part, Image) for part in pictures)
    anchors = ["first"] * images if options["keyframes"] is None else check_several("keyframes", options["keyframes"])
    for anchor in anchors:
        check_choice("keyframes", anchor, get_args(Keyframe))
    if len(anchors) != images:
        raise ValueError(f"keyframes must be one for each picture in parts, got {shown(anchors)} for {shown(parts)}")
    following = iter(anchors)
    return _Row(
        parts, sum(part.tokens for part in parts if isinstance(part, Text)), grids,
        None if options["fps"] is None else number_of("fps", options["fps"], above=0),
        () if options["trained"] is None else sizes_of("trained", options["trained"], 2),
        0 if table is None else table,
        () if options["scale"] is None else _positive("scale", options["scale"], axes),
        numbered, [next(following) if isinstance(part, Image) else "" for part in pictures],
    )  # fmt: skip


def _positive(name: str, value: float | Sequence[float], axes: int) -> tuple[float, ...]:
    values = numbers(name, value, axes)
    if min(values) <= 0:
        raise ValueError(f"{name} must be above 0, got {shown(value)}")
    return values


def _joined(blocks: Sequence[Tensor], axes: int) -> Tensor:
    """All blocks, float64 where one of them is."""
    empty = torch.zeros(0, axes, dtype=torch.int64) if not blocks or blocks[0].ndim == 2 else blocks[0][:0]
    dtype = torch.float64 if any(block.is_floating_point() for block in blocks) else torch.int64
    return torch.cat([block.to(dtype) for block in [empty, *blocks]])


def _nowhere(axes: int, tokens: int) -> Tensor:
    return torch.full((tokens, axes), NO_POSITION, dtype=torch.int64)


def _on(axis: int, axes: int, *, first: int = 0) -> Words:
    """Text on one axis, counted from ``first``."""

    def text(counted: Tensor, row: _Row) -> Tensor:
        places = torch.zeros(len(counted), axes, dtype=torch.int64)
        places[:, axis] = counted + first
        return places

    return text


def _origin(counted: Tensor, row: _Row) -> Tensor:
    return torch.zeros(len(counted), 3, dtype=torch.int64)


def _counted(places: Tensor, number: int, row: _Row) -> Tensor:
    return places


def _flat(places: Tensor, number: int, row: _Row) -> Tensor:
    return places[:, 1:] if not row.scale else _divided(places[:, 1:], row.scale)


def _divided(places: Tensor, by: Sequence[float]) -> Tensor:
    return affine(places.double(), times=[1] * len(by), plus=[0] * len(by), over=by)


def _scaled(places: Tensor, number: int, row: _Row) -> Tensor:
    return places if set(row.scale) == {1.0} else _divided(places, row.scale)


def _references_next(places: Tensor, number: int, row: _Row) -> Tensor:
    return places + torch.tensor([min(number, 1), 0, 0])


def _all_but_first(counted: Tensor, row: _Row) -> Tensor:
    """Text counts on rows and columns."""
    return torch.stack([torch.zeros_like(counted), counted, counted], -1)


def _behind_text(places: Tensor, number: int, row: _Row) -> Tensor:
    return places + torch.tensor([1 + min(number, 1), row.words, row.words])


def _flux_2(places: Tensor, number: int, row: _Row) -> Tensor:
    return torch.nn.functional.pad(places + torch.tensor([10 * number, 0, 0]), (0, 1))


def _flux_3(places: Tensor, number: int, row: _Row) -> Tensor:
    return _divided(torch.nn.functional.pad(places, (0, 1), value=-number), row.scale)


def _centred(places: Tensor, number: int, row: _Row) -> Tensor:
    _, height, width = row.grids[number]
    return places - torch.tensor([-number, (height + 1) // 2, (width + 1) // 2])


def _layered(places: Tensor, number: int, row: _Row) -> Tensor:
    last = len(row.grids) - 1
    return _centred(places, number, row) - torch.tensor([last + 1 if number == last else 0, 0, 0])


def _behind_pictures(counted: Tensor, row: _Row) -> Tensor:
    sides = [size // 2 for _, height, width in row.grids for size in (height, width)]
    return (counted + max(sides, default=0))[:, None].expand(-1, 3)


def _behind_layers(counted: Tensor, row: _Row) -> Tensor:
    sides = [size // 2 for _, height, width in row.grids for size in (height, width)]
    return (counted + max([*sides, len(row.grids) - 1]))[:, None].expand(-1, 3)


def _qwen_image_2_1(row: _Row) -> list[Tensor]:
    """Text counts on; a picture stands at the count, and takes as much of it as its larger side."""
    blocks, reached, number = [], 0, 0
    for part in row.parts:
        if isinstance(part, Text):
            blocks.append(torch.arange(reached, reached + part.tokens)[:, None].expand(-1, 3))
            reached += part.tokens
        else:
            places = _centred(grid(*row.grids[number]), number, row)
            places[:, 0] = reached
            blocks.append(places)
            reached += max(row.grids[number][1:])
            number += 1
    return blocks


def _next(places: Tensor, number: int, row: _Row) -> Tensor:
    return places + torch.tensor([number, 0, 0])


def _behind_gist(places: Tensor, number: int, row: _Row) -> Tensor:
    return places + torch.tensor([1 + row.table + number, 0, 0])


def _behind_caption(first: int) -> Place:
    return lambda places, number, row: places + torch.tensor([first + row.words, 0, 0])


def _chrono_edit(places: Tensor, number: int, row: _Row) -> Tensor:
    return places * torch.tensor([7 if row.grids[0][0] == 2 else 1, 1, 1])


def _framepack(places: Tensor, number: int, row: _Row) -> Tensor:
    if row.frames is None:
        return places
    return torch.cat([torch.tensor(list(row.frames))[places[:, :1]], places[:, 1:]], -1)


def region(size: tuple[int, int], trained: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """The part of the trained grid that has the shape of a picture: its first row and column, and the ends.

    >>> region((8, 4), (30, 45)), region((30, 45), (30, 45))
    (((0, 15), (30, 30)), ((0, 0), (30, 45)))
    """
    (height, width), (rows, columns) = size, trained
    if height / width > rows / columns:
        fitted = (rows, round(rows / height * width))
    else:
        fitted = (round(columns / width * height), columns)
    top, left = round((rows - fitted[0]) / 2), round((columns - fitted[1]) / 2)
    return (top, left), (top + fitted[0], left + fitted[1])


def _spread(size: int, start: int, stop: int) -> tuple[float, float]:
    """First and step of ``linspace(start, stop · (n − 1) / n, n)``."""
    return float(start), (stop * (size - 1) / size - start) / max(1, size - 1)


def _cut(places: Tensor, number: int, row: _Row) -> Tensor:
    """Rows and columns spread over their part of the trained grid."""
    _, height, width = row.grids[number]
    trained = (row.trained[0], row.trained[1])
    (top, left), (bottom, right) = region((height, width), trained)
    (first_row, row_step), (first_column, column_step) = _spread(height, top, bottom), _spread(width, left, right)
    return affine(
        places.double(), times=[1, row_step, column_step], plus=[0, first_row, first_column], over=[1, 1, 1]
    )  # fmt: skip


def _cut_flat(places: Tensor, number: int, row: _Row) -> Tensor:
    return _cut(places, number, row)[:, 1:]


def _onto_trained(places: Tensor, number: int, row: _Row) -> Tensor:
    return floored(places[:, 1:], times=row.trained, over=row.grids[number][1:])


def _cosmos(places: Tensor, number: int, row: _Row) -> Tensor:
    if row.fps is None:
        return places
    return affine(places.double(), times=[24, 1, 1], plus=[0, 0, 0], over=[row.fps, 1, 1])


def _mochi(places: Tensor, number: int, row: _Row) -> Tensor:
    _, height, width = row.grids[number]
    step = math.sqrt(row.trained[0] * row.trained[1] / (height * width))
    return affine(
        places.double(), times=[1, step, step], plus=[0, step * (1 - height) / 2, step * (1 - width) / 2],
        over=[1, 1, 1],
    )  # fmt: skip


_FRAMES, _PIXELS = 8, 32  # of a latent frame and of a latent patch of LTX
_BOX = (20, 2048, 2048)  # seconds and pixels that LTX takes for the whole


def _ltx(places: Tensor, number: int, row: _Row) -> Tensor:
    assert row.fps is not None
    return affine(
        places.double(), times=[2 * _FRAMES, 2 * _PIXELS, 2 * _PIXELS],
        plus=[-row.fps * _BOX[0], -_BOX[1], -_BOX[2]], over=[row.fps * _BOX[0], _BOX[1], _BOX[2]],
    )  # fmt: skip


def _ltx_2(places: Tensor, number: int, row: _Row) -> Tensor:
    assert row.fps is not None
    counted = places.double()
    seconds = _middle(counted[:, 0]) / row.fps
    middles = torch.stack([seconds, *((counted[:, 1:] + 0.5) * _PIXELS).unbind(-1)], -1)
    return 2 * middles / torch.tensor(_BOX, dtype=torch.float64) - 1


def _ltx_2_sound(counted: Tensor, number: int, row: _Row) -> Tensor:
    hops_per_second = 16_000 / 160
    return 2 * _middle(counted.double()) / hops_per_second / _BOX[0] - 1


def _middle(counted: Tensor) -> Tensor:
    """The middle of latent frame i in frames: of max(8 i − 7, 0) and 8 i + 1, as the first latent frame holds one."""
    return ((_FRAMES * counted + 1 - _FRAMES).clamp(min=0) + _FRAMES * counted + 1) / 2


_FAR = 65536  # where Ideogram 4 counts its picture from, so that no text reaches it


def _far(places: Tensor, number: int, row: _Row) -> Tensor:
    return places + _FAR


def _all_axes(counted: Tensor, row: _Row) -> Tensor:
    return counted[:, None].expand(-1, 3)


_SPANS = (1, 4, 4, 4, 4)  # frames of a latent frame of MiniMax-H3, over and over
_UNIT, _ACROSS = 5 / 3, 32


def _minimax_h3(places: Tensor, number: int, row: _Row) -> Tensor:
    """A picture before the video is to be its first frame or its last, and stands there."""
    frames, height, width = row.grids[number]
    times = row.words + _starts(frames)[:-1]
    if row.keyframes[number] == "last":
        times = row.words + _starts(row.grids[-1][0])[-1:] - _UNIT
    by_side = [_of_side(size, height, width)[places[:, axis]] for axis, size in ((1, height), (2, width))]
    return torch.stack([times[places[:, 0]], *by_side], -1)


def _starts(frames: int) -> Tensor:
    """Where latent frames of MiniMax-H3 begin, and where the last one ends."""
    spans = torch.tensor([_UNIT * _SPANS[frame % len(_SPANS)] for frame in range(frames)], dtype=torch.float64)
    return torch.cat([spans.new_zeros(1), spans.cumsum(0)])


def _of_side(size: int, height: int, width: int) -> Tensor:
    """Coordinates along one side, in the middle of 0 … 32 and longer than that where the side is the longer one."""
    ratio = size / math.sqrt(height * width)
    return ((1 - ratio) / 2 + torch.arange(size, dtype=torch.float64) * ratio / size) * _ACROSS


def _minimax_h3_sound(counted: Tensor, number: int, row: _Row) -> Tensor:
    """The first channel stands at the first column of the video, further ones at its last."""
    if not row.grids:
        raise ValueError(f"parts must have a video where there is sound for 'minimax-h3', got {shown(row.parts)}")
    _, height, width = row.grids[-1]
    columns = _of_side(width, height, width)
    places = torch.zeros(len(counted), 3, dtype=torch.float64)
    places[:, 0], places[:, 2] = row.words + counted, columns[-1 if number else 0]
    return places


def _middle_of_table(places: Tensor, number: int, row: _Row) -> Tensor:
    _, height, width = row.grids[number]
    top, left = (row.table - height) // 2, (row.table - width) // 2
    return affine(
        places[:, 1:].double(), times=row.trained, plus=[top * row.trained[0], left * row.trained[1]],
        over=[row.table] * 2,
    )  # fmt: skip


def _pixart(places: Tensor, number: int, row: _Row) -> Tensor:
    over = [size * by for size, by in zip(row.grids[number][1:], row.scale, strict=True)]
    return affine(places[:, 1:].double(), times=row.trained, plus=[0, 0], over=over)


RULES: dict[ModelName, Rule] = {
    "flux-1": Rule(_references_next, _origin),
    "krea-2": Rule(_counted, _origin),
    "hidream": Rule(_counted, _origin),
    "ovis-image": Rule(_counted, _all_but_first),
    "longcat-image": Rule(_behind_text, _all_but_first),
    "flux-2": Rule(_flux_2, _on(3, 4)),
    "flux-3": Rule(_flux_3, _on(3, 4)),
    "qwen-image": Rule(_centred, _behind_pictures),
    "qwen-image-layered": Rule(_layered, _behind_layers),
    "qwen-image-2.1": Rule(_centred, whole_row=_qwen_image_2_1),
    "joyimage": Rule(_next),
    "lumina-2": Rule(_behind_caption(0), _on(0, 3)),
    "z-image": Rule(_behind_caption(1), _on(0, 3, first=1)),
    "bria-fibo-2": Rule(_behind_gist, _on(0, 3, first=1)),
    "ernie-image": Rule(_behind_caption(0), _on(0, 3)),
    "hunyuan-image": Rule(_flat),
    "glm-image": Rule(_flat),
    "prx": Rule(_flat),
    "lumina-next": Rule(_flat),
    "cogview-4": Rule(_onto_trained),
    "hunyuan-dit": Rule(_cut_flat),
    "wan": Rule(_counted),
    "chrono-edit": Rule(_chrono_edit),
    "helios": Rule(_framepack),
    "hunyuan-video": Rule(_counted),
    "framepack": Rule(_framepack),
    "cogvideox": Rule(_cut),
    "cogvideox-1.5": Rule(_counted),
    "cogvideox-2b": Rule(_scaled),
    "easyanimate": Rule(_cut),
    "allegro": Rule(_scaled),
    "kandinsky-5": Rule(_scaled),
    "kandinsky-6": Rule(_scaled),
    "kandinsky-6-sr": Rule(_scaled),
    "cosmos": Rule(_cosmos),
    "mochi": Rule(_mochi),
    "ltx": Rule(_ltx),
    "ltx-2": Rule(_ltx_2, sound=_ltx_2_sound),
    "ideogram-4": Rule(_far, _all_axes),
    "minimax-h3": Rule(_minimax_h3, _on(0, 3), sound=_minimax_h3_sound),
    "sd3": Rule(_middle_of_table),
    "pixart": Rule(_pixart),
}
