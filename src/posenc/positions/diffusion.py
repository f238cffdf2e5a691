"""Positions in diffusion transformers: where text, picture, frames and reference pictures stand on their axes.

    flux-1          text (0, 0, 0), every token; pictures (n, row, column), n = 0, then 1 for references (Kontext)
    flux-2          text (0, 0, 0, l); pictures (10 n, row, column, 0)
    qwen-image      pictures (n, row − ⌈H/2⌉, column − ⌈W/2⌉); text (s, s, s), (s + 1, …), s = max ⌊H/2⌋, ⌊W/2⌋ of all
    wan             (frame, row, column); text is not rotated
    hunyuan-video   the same
    lumina-2        caption (l, 0, 0); picture (length of the caption, row, column)
    z-image         caption (1 + l, 0, 0); picture (1 + length of the caption, row, column)

n numbers the pictures, l the tokens of the text, from 0. Sizes are those of the latent patches, as the transformer
receives them. Z-Image pads captions to a multiple of 32, and the padding counts: give the padded length.

Source: diffusers 0.42, models/transformers: transformer_flux.py, transformer_flux2.py, transformer_qwenimage.py,
    transformer_wan.py, transformer_hunyuan_video.py, transformer_lumina2.py, transformer_z_image.py, and the pipelines
    that number text and pictures for them. Wan: arXiv 2503.20314; HunyuanVideo: arXiv 2412.03603; Qwen-Image: arXiv
    2508.02324; Lumina-Image 2: arXiv 2503.21758.
Checked against: the position modules of these files.
Departs from the source: nothing; a model that gives text no rotation has it without a place here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from posenc.positions.builders import check_name, register
from posenc.positions.checking import NOWHERE
from posenc.positions.grids import grid
from posenc.positions.parts import Audio, Image, Part, Text, Video, checked

Model = Literal["flux-1", "flux-2", "qwen-image", "wan", "hunyuan-video", "lumina-2", "z-image"]


class _Rule(NamedTuple):
    """Where a model's tokens stand.

    Attributes:
        text: coordinates of one text's tokens, given their numbers ``(tokens,)`` and all parts.
        picture: coordinates of a grid ``(tokens, 3)`` of (frame, row, column), given the number of the picture, its
            part, and all parts.
    """

    text: Callable[[Tensor, Sequence[Part]], Tensor]
    picture: Callable[[Tensor, int, Image | Video, Sequence[Part]], Tensor]


def latents(parts: Sequence[Part], *, model: Model) -> Tensor:
    """Positions ``(tokens, axes)`` of the tokens of one row, in the order of its parts; int64.

    Args:
        parts: `Text`, `Image` (the first is the one that is made, others are references) and `Video`.
        model: whose rules: "flux-1" (Kontext too), "flux-2", "qwen-image" (Edit too), "wan", "hunyuan-video",
            "lumina-2", "z-image". `AxialRoPE.of_model` has the encodings.

    Raises:
        ValueError: for an unknown model, for sound, and for more than one picture where the model takes one.

    >>> from posenc.positions import Image, Text
    >>> latents([Text(2), Image(1, 2)], model="flux-1").tolist()
    [[0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 1]]
    >>> latents([Image(2, 2), Text(1)], model="qwen-image").tolist()
    [[0, -1, -1], [0, -1, 0], [0, 0, -1], [0, 0, 0], [1, 1, 1]]
    """
    check_name("latents", model)
    given = checked(parts)
    rule, blocks = _RULES[model], [torch.zeros(0, AXES[model], dtype=torch.int64)]
    pictures = [part for part in given if isinstance(part, Image | Video)]
    if any(isinstance(part, Audio) for part in given):
        raise ValueError(f"parts must be Text, Image or Video for {model!r}, got Audio")
    if len(pictures) > 1 and model in _ONE_PICTURE:
        raise ValueError(f"parts must have one picture for {model!r}, got {len(pictures)}")
    words = pictured = 0
    for part in given:
        if isinstance(part, Text):
            blocks.append(rule.text(torch.arange(words, words + part.tokens), given))
            words += part.tokens
        elif isinstance(part, Image | Video):
            frames = part.frames if isinstance(part, Video) else 1
            blocks.append(rule.picture(grid(frames, part.height, part.width), pictured, part, given))
            pictured += 1
    return torch.cat(blocks)


AXES: dict[str, int] = {
    "flux-1": 3, "flux-2": 4, "qwen-image": 3, "wan": 3, "hunyuan-video": 3, "lumina-2": 3, "z-image": 3,
}  # fmt: skip
_ONE_PICTURE = ("wan", "hunyuan-video", "lumina-2", "z-image")


def _on(axis: int, axes: int, values: Tensor) -> Tensor:
    """Coordinates that are 0 but on one axis."""
    places = torch.zeros(len(values), axes, dtype=torch.int64)
    places[:, axis] = values
    return places


def _nowhere(numbers: Tensor, parts: Sequence[Part]) -> Tensor:
    return torch.full((len(numbers), 3), NOWHERE, dtype=torch.int64)


def _plain(places: Tensor, number: int, part: Image | Video, parts: Sequence[Part]) -> Tensor:
    return places


def _caption(parts: Sequence[Part]) -> int:
    return sum(part.tokens for part in parts if isinstance(part, Text))


def _text_behind_pictures(numbers: Tensor, parts: Sequence[Part]) -> Tensor:
    sizes = [size // 2 for part in parts if isinstance(part, Image | Video) for size in (part.height, part.width)]
    return (numbers + max(sizes, default=0))[:, None].expand(-1, 3)


def _centred(places: Tensor, number: int, part: Image | Video, parts: Sequence[Part]) -> Tensor:
    return places - torch.tensor([-number, (part.height + 1) // 2, (part.width + 1) // 2])


def _behind_caption(first: int) -> Callable[[Tensor, int, Image | Video, Sequence[Part]], Tensor]:
    return lambda places, number, part, parts: places + torch.tensor([first + _caption(parts), 0, 0])


_RULES: dict[str, _Rule] = {
    "flux-1": _Rule(
        lambda numbers, parts: _on(0, 3, 0 * numbers),
        lambda places, number, part, parts: places + torch.tensor([min(number, 1), 0, 0]),
    ),
    "flux-2": _Rule(
        lambda numbers, parts: _on(3, 4, numbers),
        lambda places, number, part, parts: torch.nn.functional.pad(places + torch.tensor([10 * number, 0, 0]), (0, 1)),
    ),
    "qwen-image": _Rule(_text_behind_pictures, _centred),
    "wan": _Rule(_nowhere, _plain),
    "hunyuan-video": _Rule(_nowhere, _plain),
    "lumina-2": _Rule(lambda numbers, parts: _on(0, 3, numbers), _behind_caption(0)),
    "z-image": _Rule(lambda numbers, parts: _on(0, 3, numbers + 1), _behind_caption(1)),
}
register("latents", "model", tuple(_RULES))
