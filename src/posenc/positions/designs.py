"""Position designs of vision-language models, one rule each, as a comparison of them set them side by side.

    position = (s, s, s) + local        s: where the picture starts;  with a spatial reset  (s, 0, 0) + local
    s of the next part = s + 1 + the largest local coordinate;  text: local = (i, i, i),  i = 0, 1, …

    mrope, mrope-i, mhrope   local = (d·t, row, column)
    omnirope, ilrope         the same, always with a spatial reset
    mm-rope                  local = (4·d·t, 8·row, 8·column)                        scale (4, 8, 8) or another
    videorope, hope          local = d·t + (0, row − ⌊(H−1)/2⌋, column − ⌊(W−1)/2⌋), the next part after time alone
    circlerope               local = (d·t, d·t, d·t) + a point on a circle about 0 in the plane normal to (1, 1, 1)
    v2pe                     local = (k·span/N − 1) on every axis, k = 1 … N in token order; the next part at s + ⌈span⌉

t counts frames, d = `stride` ids lie from one frame to the next, a picture has H rows, W columns and N tokens. Counted
ids are int64. Fractions are float64: float32 above 65536 cannot tell the tokens of V2PE apart (span 1, 256 tokens).
A video is one block, unless text stands between its frames, which then are pictures of their own, as in Qwen3-VL.

Source: Huang et al., Revisiting Multimodal Positional Encoding in Vision-Language Models, arXiv 2510.23095, in its
    code, JJJYmmm/Multimodal-RoPEs at cd413b9, pos_design. MRoPE: arXiv 2409.12191; VideoRoPE: 2502.05173; HoPE:
    2505.20444; CircleRoPE: 2505.16416; V2PE: 2412.09616; OmniRoPE of OmniGen2: 2506.18871; ILRoPE: 2505.05472;
    MM-RoPE of Lumos-1: 2507.08801.
Checked against: that code, one picture, two pictures, and videos by frames; VideoRoPE and HoPE also against their own
    code (Wiselnn570/VideoRoPE at 7712ca3, hrlics/HoPE at 85b76c0), videos that are one block.
Departs from the source: the comparison's code splits every video into frames before it counts, so that t is always 0
    and its stride (VideoRoPE's, HoPE's scaling) never acts; here it acts on a video that is one block. Its strides of
    MRoPE and MRoPE-I are truncated, as ids take the dtype of the tokens. Its CircleRoPE takes −1 for a radius and a
    share of angles, where its page says that −1 stands for a default; here the default is the authors' released one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from posenc.arguments import check_flag, check_several, shown
from posenc.positions.builders import check_name, register
from posenc.positions.grids import grid
from posenc.positions.parts import Audio, Image, Part, Text, Video, checked
from posenc.positions.validation import FARTHEST, number_of
from posenc.positions.videos import on_all_axes

Design = Literal[
    "mrope", "mrope-i", "mhrope", "omnirope", "ilrope", "mm-rope", "videorope", "hope", "circlerope", "v2pe"
]  # fmt: skip
register("multimodal", "design", get_args(Design))
HOPE_STRIDES = (0.5, 0.75, 1.0, 1.25, 1.5)  # from which HoPE's training draws one for each video
AXES = 3  # time, row, column


class Circle(NamedTuple):
    """Where CircleRoPE puts the tokens of a picture; defaults of the authors' released configuration.

    Attributes:
        radius: of the circle, in ids; "auto": the largest coordinate of the grid.
        alpha: the angle is alpha · (that of the token in its picture, spread over 0 … 2π) + (1 − alpha) · 2π k/N, with
            k = 0 … N − 1 in token order. At 1 the tokens of the smallest and of the largest angle coincide.
        centred: whether angles are seen from the middle of the picture, not from its first token.
        plane: share of the picture laid flat into the same plane, which the circle gives up, from 0 to 1.
        positive: None, or a number: coordinates are moved up to begin at it, on every axis alike.
    """

    radius: float | Literal["auto"] = 10.0
    alpha: float = 0.5
    centred: bool = True
    plane: float = 0.0
    positive: float | None = None


def multimodal(
    parts: Sequence[Part],
    *,
    design: Design,
    reset: bool | None = None,
    stride: float | Sequence[float] | None = None,
    scale: Sequence[float] | None = None,
    span: float | None = None,
    circle: Circle | None = None,
) -> Tensor:
    """Positions ``(tokens, 3)`` of one sequence, (time, row, column), under a position design.

    int64 where the design counts, float64 where it makes fractions. Which pairs read which axis: `MRoPE` with
    ``order=pair_order(design, sections)``, or `MHRoPE`. Released models: `stream`.

    Args:
        parts: what the row holds, in order: `Text`, `Image`, `Video`, `Audio` (which counts as text does).
        design: "mrope", "mrope-i", "mhrope", "videorope", "hope", "circlerope", "v2pe", "omnirope", "ilrope" or
            "mm-rope".
        reset: spatial reset: rows and columns of each picture count from 0, time goes on behind the text. Default
            False; always True in "omnirope" and "ilrope"; "v2pe" has one coordinate and takes none.
        stride: ids from one frame to the next, one number, or one for each picture and video. Default 2 in "videorope",
            else 1; "hope" has no default: training draws from `HOPE_STRIDES`, inference chooses. "v2pe" takes none.
        scale: of (time, row, column) in "mm-rope", the compression of the video's latents; default (4, 8, 8).
        span: ids that a picture of "v2pe" takes, above 0; default 16. A video that is one block takes as many.
        circle: a `Circle`, in "circlerope".

    Raises:
        ValueError: for an unknown design (naming the builder of a model's or family's name), and for an option that the
            design does not take.

    >>> from posenc.positions import Image, Text
    >>> multimodal([Text(2), Image(1, 2), Text(1)], design="mrope-i", reset=True).tolist()
    [[0, 0, 0], [1, 1, 1], [2, 0, 0], [2, 0, 1], [4, 4, 4]]
    >>> multimodal([Text(2), Image(1, 2), Text(1)], design="v2pe", span=1)[:, 0].tolist()
    [0.0, 1.0, 1.5, 2.0, 3.0]
    """
    check_name("multimodal", design)
    row = checked(parts)
    resets, local = _resets(design, reset), _local_of(design, scale, span, circle)
    start: float = 0  # an int while positions are counts
    blocks = [torch.zeros(0, AXES, dtype=torch.int64)]
    for piece in _pieces(row, _strides(design, stride, row)):
        if isinstance(piece, Text):
            places, after, spatial = on_all_axes(torch.arange(piece.tokens), AXES), float(piece.tokens), start
        else:
            # Under a reset rows and columns begin at 0, while time goes on where the text has left it.
            (places, after), spatial = local(piece), 0 if resets else start
        blocks.append(places + _numbers(start, spatial, spatial))
        start = _integral(start + after)
    return torch.cat(blocks)


class _Picture(NamedTuple):
    """Frames whose coordinates count together, ``stride`` ids from one to the next."""

    frames: int
    height: int
    width: int
    stride: float


_Local = Callable[[_Picture], tuple[Tensor, float]]  # coordinates (tokens, 3) about the start; from there to the next


def _pieces(row: Sequence[Part], strides: Sequence[float]) -> Iterator[Text | _Picture]:
    """Text and pictures in order; text between the frames of a video makes each frame a picture."""
    left = iter(strides)
    for part in row:
        if isinstance(part, Text | Audio):
            yield Text(part.tokens)
            continue
        stride, height, width = next(left), part.height, part.width
        frames, between = (part.frames, part.between) if isinstance(part, Video) else (1, 0)
        gaps = [between] * (frames - 1) if isinstance(between, int) else list(between)
        if not any(gaps):
            yield _Picture(frames, height, width, stride)
            continue
        # A frame behind text is a block of its own: its time is that of the text before it, and its stride counts for
        # nothing.
        yield _Picture(1, height, width, stride)
        for gap in gaps:
            yield Text(gap)
            yield _Picture(1, height, width, stride)


def _resets(design: Design, reset: bool | None) -> bool:
    """Whether rows and columns of a picture start at 0."""
    if design in ("omnirope", "ilrope"):
        if reset is not None and not check_flag("reset", reset):
            raise ValueError(f"reset must not be False: {design!r} always resets rows and columns; 'mrope-i' need not")
        return True
    if design == "v2pe" and reset is not None:
        raise ValueError(
            "reset must not be given: 'v2pe' has one coordinate, no rows and columns that could start at 0"
        )
    return False if reset is None else check_flag("reset", reset)


def _strides(design: Design, stride: float | Sequence[float] | None, row: Sequence[Part]) -> list[float]:
    """Ids from one frame to the next, of each picture and video."""
    seen = [part for part in row if isinstance(part, Image | Video)]
    if stride is None:
        if design == "hope" and any(isinstance(part, Video) and part.frames > 1 for part in seen):
            raise ValueError(
                "stride must be given for a video under 'hope': its training draws one of HOPE_STRIDES = "
                f"{HOPE_STRIDES} for each video, and its inference chooses one for the task"
            )
        return [2 if design == "videorope" else 1] * len(seen)
    if design == "v2pe":
        raise ValueError("stride must not be given: 'v2pe' spreads span ids over all tokens of a picture")
    if isinstance(stride, Iterable) and getattr(stride, "ndim", None) != 0:  # a tensor without axes is one number
        steps = check_several("stride", stride)
        if len(steps) != len(seen):
            raise ValueError(
                f"stride must be one number, or one for each of {len(seen)} pictures and videos in parts, got {steps}"
            )
    else:
        steps = [number_of("stride", stride, above=0)] * len(seen)
    return [_integral(number_of("stride", step, above=0)) for step in steps]


def _local_of(design: Design, scale: Sequence[float] | None, span: float | None, circle: Circle | None) -> _Local:
    """The rule of a design, with its own options checked."""
    for name, value, owner in (("scale", scale, "mm-rope"), ("span", span, "v2pe"), ("circle", circle, "circlerope")):
        if value is not None and design != owner:
            raise ValueError(f"{name} must not be given for {design!r}: it is an option of {owner!r}")
    if design == "mm-rope":
        return _counted(_scales((4, 8, 8) if scale is None else scale))
    if design == "v2pe":
        return _spread(16.0 if span is None else number_of("span", span, above=0))
    if design == "circlerope":
        return _circled(_checked_circle(Circle() if circle is None else circle))
    return _diagonal if design in ("videorope", "hope") else _counted([1, 1, 1])


def _counted(scales: Sequence[float]) -> _Local:
    """(d·t, row, column), each times its scale."""

    def local(picture: _Picture) -> tuple[Tensor, float]:
        factors = [scales[0] * picture.stride, scales[1], scales[2]]
        last = [(size - 1) * factor for size, factor in zip(picture[:3], factors, strict=True)]
        return grid(*picture[:3]) * _numbers(*factors, reach=max(last)), 1 + max(last)

    return local


def _diagonal(picture: _Picture) -> tuple[Tensor, float]:
    """Rows and columns counted from the middle of the picture, which moves along the diagonal with time."""
    last = (picture.frames - 1) * picture.stride
    time, *places = (grid(*picture[:3]) * _numbers(picture.stride, 1, 1, reach=last)).unbind(-1)
    middle = ((picture.height - 1) // 2, (picture.width - 1) // 2)
    return torch.stack([time, *(time + place - at for place, at in zip(places, middle, strict=True))], -1), 1 + last


def _spread(span: float) -> _Local:
    """One coordinate that grows by span / N a token; the last id before the picture is −1 here."""

    def local(picture: _Picture) -> tuple[Tensor, float]:
        tokens = picture.frames * picture.height * picture.width
        # The first token is one step behind the text's last id, and the last one lies at span − 1, so that text goes on
        # at a whole id whatever the number of tokens.
        ids = torch.arange(1, tokens + 1, dtype=torch.float64) * (span / tokens) - 1
        return on_all_axes(ids, AXES), float(math.ceil(span))

    return local


def _circled(circle: Circle) -> _Local:
    """Points on a circle in the plane normal to the line (1, 1, 1) of text, and frames along that line."""

    def local(picture: _Picture) -> tuple[Tensor, float]:
        rows, columns = grid(picture.height, picture.width).double().unbind(-1)
        if circle.centred:
            rows, columns = rows - (picture.height - 1) / 2, columns - (picture.width - 1) / 2
        radius = torch.maximum(rows, columns).max() if circle.radius == "auto" else circle.radius
        # Two angles a token: its direction from the middle, scaled to the full circle, and its number among the
        # tokens. alpha mixes them; where all directions are equal, there is no range to scale.
        seen = torch.atan2(rows, columns)
        if seen.max() > seen.min():
            seen = (seen - seen.min()) / (seen.max() - seen.min()) * 2 * math.pi
        counted = torch.arange(len(seen), dtype=torch.float64) / len(seen) * 2 * math.pi
        angle = circle.alpha * seen + (1 - circle.alpha) * counted
        x = (1 - circle.plane) * radius * angle.cos() + circle.plane * columns
        y = (1 - circle.plane) * radius * angle.sin() + circle.plane * rows
        across, along = x / math.sqrt(2), y / math.sqrt(6)  # of the plane's axes (0, 1, −1) and (2, −1, −1), normed
        places = torch.stack([2 * along, across - along, -across - along], -1)
        if circle.positive is not None:
            places = places + places.min().abs() + circle.positive
        # Along (1, 1, 1): the same on all axes, so that a frame keeps its distance to every token of text.
        times = torch.arange(picture.frames, dtype=torch.float64) * picture.stride
        places = (places + times[:, None, None]).flatten(0, 1)
        return places, 1 + float(places.max())

    return local


def _scales(scale: Sequence[float]) -> list[float]:
    scales = [_integral(number_of("scale", factor, above=0)) for factor in check_several("scale", scale)]
    if len(scales) != AXES:
        raise ValueError(f"scale must be three numbers, of time, row and column, got {shown(scale)}")
    return scales


def _checked_circle(circle: Circle) -> Circle:
    if not isinstance(circle, Circle):
        raise ValueError(f"circle must be a Circle, got {shown(circle)}")
    far = -FARTHEST
    return Circle(
        radius="auto" if isinstance(circle.radius, str) and circle.radius == "auto"
        else number_of("circle.radius", circle.radius, least=far),
        alpha=number_of("circle.alpha", circle.alpha, least=far),
        centred=check_flag("circle.centred", circle.centred),
        plane=number_of("circle.plane", circle.plane, least=0, most=1),
        positive=None if circle.positive is None else number_of("circle.positive", circle.positive, least=far),
    )  # fmt: skip


def _integral(number: float) -> float:
    """An int where the number is one, so that ids stay integers."""
    return int(number) if float(number).is_integer() else number


def _numbers(*values: float, reach: float = 0) -> Tensor:
    """Factors or summands of ids: int64 where all are whole, else float64; a ValueError for ids that grow too large."""
    if max(map(abs, (*values, reach))) > FARTHEST:
        raise ValueError(f"stride, scale, span and circle must keep ids below {FARTHEST:g}, got {shown(max(values))}")
    integers = all(isinstance(value, int) for value in values)
    return torch.tensor(values, dtype=torch.int64 if integers else torch.float64)
