"""What a mixed stream holds: text, sound, pictures and videos; sizes are as the language model receives them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from posenc.arguments import check_several
from posenc.positions.validation import check_fits, count_of, number_of


class Text(NamedTuple):
    """Tokens of text, special ones included."""

    tokens: int


class Audio(NamedTuple):
    """Tokens of sound, which count on as text does (Qwen2.5-Omni: one each 40 ms, 25 ids per second)."""

    tokens: int


class Image(NamedTuple):
    """A picture of ``height · width`` tokens, as the language model receives it: after merging."""

    height: int
    width: int


class Video(NamedTuple):
    """A video of ``frames · height · width`` tokens, as the language model receives it: after merging.

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


def checked(parts: Sequence[Part]) -> list[Part]:
    """The parts with fields that are numbers of Python; a ValueError that names part and field where one is none."""
    checked = check_several("parts", parts)
    for number, part in enumerate(checked):
        if not isinstance(part, Part):
            raise ValueError(f"parts must be Text, Image, Video or Audio, got {type(part).__name__}")
        try:
            checked[number] = _checked(part)
        except ValueError as error:
            raise ValueError(f"parts[{number}]: {error}") from None
    return checked


def _checked(part: Part) -> Part:
    if isinstance(part, Text | Audio):
        return part._replace(tokens=count_of("tokens", part.tokens, least=0))
    height, width = count_of("height", part.height), count_of("width", part.width)
    if isinstance(part, Image):
        check_fits("height and width", 3, height, width)
        return Image(height, width)
    frames, seconds = count_of("frames", part.frames), number_of("seconds_per_grid", part.seconds_per_grid, least=0)
    check_fits("frames, height and width", 3, frames, height, width)
    return Video(frames, height, width, seconds, _between(part.between, frames - 1))


def _between(between: int | Sequence[int], gaps: int) -> int | list[int]:
    """Tokens of text between two frames: one number, or one for each gap."""
    if not isinstance(between, Iterable) or getattr(between, "ndim", 1) == 0:  # a tensor without axes is one number
        tokens = count_of("between", between, least=0)
        check_fits("frames and between", gaps, tokens)
        return tokens
    counts = [count_of("between", tokens, least=0) for tokens in check_several("between", between)]
    if len(counts) != gaps:
        raise ValueError(f"between must be one number, or one for each of {gaps} gaps, got {len(counts)}")
    return counts
