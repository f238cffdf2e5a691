"""Coordinates of the tokens of a grid, in the conventions of published models.

    coordinate = (times · i + plus) / over        i = 0, 1, … along an axis; times, plus and over differ by convention

`grid` counts tokens along each axis, exactly. The other functions map such coordinates, whole or fractional, to those
that a model was trained with; each takes coordinates ``(*batch, tokens, axes)`` and gives them in float64 for float64
ones, else in float32, rounded once. Tokens without a place (`NO_POSITION`) keep their mark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from posenc.arguments import check_choice, check_flag, shown
from posenc.positions.checking import NO_POSITION, check_coordinates, wide
from posenc.positions.validation import Sizes, check_fits, count_of, number_of, numbers, sizes_of

Per = Literal["axis", "min", "max"]


def grid(*sizes: int) -> Tensor:
    """Integer coordinates ``(product of sizes, axes)`` of a grid, row by row: the last axis moves fastest.

    Two axes are (row, column), three (frame, row, column). RoPE-Axial and -Mixed (arXiv 2403.13298), Qwen-VL, V-JEPA 2,
    Swin and tables of learned rows count so.

    >>> grid(2, 2)
    tensor([[0, 0],
            [0, 1],
            [1, 0],
            [1, 1]])
    """
    axes = torch.meshgrid(*(torch.arange(size) for size in counts_of(sizes)), indexing="ij")
    return torch.stack(axes, -1).flatten(0, -2)


def centred(coordinates: Tensor, sizes: Sizes) -> Tensor:
    """Centres of patches in a picture from 0 to 1: (i + ½) / size. ComRoPE (arXiv 2506.03737).

    Args:
        coordinates: ``(*batch, tokens, axes)``, as from `grid`.
        sizes: tokens along each axis. ComRoPE divides frames by the spatial size as well: ``(16, 16, 16)`` for video.

    >>> centred(grid(1, 4), (1, 4))[:, 1]
    tensor([0.1250, 0.3750, 0.6250, 0.8750])
    """
    sizes = _sizes(coordinates, "sizes", sizes)
    return affine(coordinates, times=[2] * len(sizes), plus=[1] * len(sizes), over=[2 * size for size in sizes])


def signed(coordinates: Tensor, sizes: Sizes, *, per: Per = "axis", corners: bool = False) -> Tensor:
    """Centres of patches in a picture from −1 to 1: 2 (i + ½) / size − 1. DINOv3 (arXiv 2508.10104), SAM.

    Args:
        coordinates: ``(*batch, tokens, axes)``, as from `grid`.
        sizes: tokens along each axis.
        per: the size to divide by: each ``"axis"`` its own (the authors' "separate", their default), or the ``"min"``
            or ``"max"`` of all; an axis then ends beyond −1 and 1, or leaves them free at one end.
        corners: the first token at −1 and the last at 1, 2i / (size − 1) − 1, as Perceiver (arXiv 2103.03206).

    >>> signed(grid(1, 4), (1, 4))[:, 1]
    tensor([-0.7500, -0.2500,  0.2500,  0.7500])
    >>> signed(grid(1, 5), (1, 5), corners=True)[:, 1]
    tensor([-1.0000, -0.5000,  0.0000,  0.5000,  1.0000])
    """
    sizes = _sizes(coordinates, "sizes", sizes)
    check_choice("per", per, get_args(Per))
    if per != "axis":
        sizes = (min(sizes) if per == "min" else max(sizes),) * len(sizes)
    if check_flag("corners", corners):
        steps = [max(size - 1, 1) for size in sizes]
        return affine(coordinates, times=[2] * len(sizes), plus=[-step for step in steps], over=steps)
    return affine(coordinates, times=[2] * len(sizes), plus=[1 - size for size in sizes], over=sizes)


def spaced(coordinates: Tensor, sizes: Sizes, trained: Sizes) -> Tensor:
    """First token 0, last size / trained: ``linspace(0, size / trained, size)``, as LieRE (arXiv 2406.10322).

    At the trained size an axis runs from 0 to 1. At another its step is not quite the trained one.

    Args:
        coordinates: ``(*batch, tokens, axes)``, as from `grid`.
        sizes: tokens along each axis.
        trained: tokens along each axis in training.

    >>> spaced(grid(1, 5), (1, 5), trained=5)[:, 1]
    tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000])
    """
    sizes, trained = _sizes(coordinates, "sizes", sizes), _sizes(coordinates, "trained", trained)
    over = [old * max(size - 1, 1) for size, old in zip(sizes, trained, strict=True)]
    return affine(coordinates, times=sizes, plus=[0] * len(sizes), over=over)


def rescaled(coordinates: Tensor, sizes: Sizes, onto: Sizes) -> Tensor:
    """Rescaled to the extent of another grid: i / size · onto. EVA-02 (arXiv 2303.11331); timm's ``ref_feat_shape``.

    Args:
        coordinates: ``(*batch, tokens, axes)``, as from `grid`.
        sizes: tokens along each axis.
        onto: tokens along each axis of the grid of reference, that of pre-training.

    >>> rescaled(grid(1, 4), (1, 4), onto=2)[:, 1]
    tensor([0.0000, 0.5000, 1.0000, 1.5000])
    """
    sizes, onto = _sizes(coordinates, "sizes", sizes), _sizes(coordinates, "onto", onto)
    return affine(coordinates, times=onto, plus=[0] * len(sizes), over=sizes)


def aligned(coordinates: Tensor, sizes: Sizes, onto: Sizes, *, offset: float = 0.0) -> Tensor:
    """Where a token's centre lies on another grid over the same picture: (i + ½) · onto / (size + offset) − ½.

    So read, a learned table of another size is resized as ``F.interpolate(align_corners=False)`` does it (ViT, DeiT,
    MAE). Border tokens of a finer grid lie outside the outermost centres of the other one.

    Args:
        coordinates: ``(*batch, tokens, axes)``, as from `grid`.
        sizes: tokens along each axis.
        onto: tokens along each axis of the other grid.
        offset: tokens that the picture is taken to have more along each axis, from 0 to 0.5: 0.1 in DINOv2 (arXiv
            2304.07193) but for its models with registers.

    >>> aligned(grid(1, 4), (1, 4), onto=2)[:, 1]
    tensor([-0.2500,  0.2500,  0.7500,  1.2500])
    """
    sizes, onto = _sizes(coordinates, "sizes", sizes), _sizes(coordinates, "onto", onto)
    extra = number_of("offset", offset, least=0, most=0.5)
    both = [(old + extra, new) for old, new in zip(sizes, onto, strict=True)]
    # (i + ½) · onto / size − ½, with numerator and divisor whole, so that one rounding is left.
    return affine(
        coordinates, times=[2 * new for _, new in both], plus=[new - old for old, new in both],
        over=[2 * old for old, _ in both],
    )  # fmt: skip


def nearest(coordinates: Tensor, sizes: Sizes, onto: Sizes) -> Tensor:
    """Which place of another grid over the same picture a token reads: ⌊i · onto / size⌋, int64. Idefics2, MiniCPM-V.

    So NaViT's fractional coordinates i / size (arXiv 2307.06304) fall into the places of one trained table, whatever
    the size of the picture; ``F.interpolate(mode="nearest")`` repeats and leaves out rows likewise.

    Args:
        coordinates: ``(*batch, tokens, axes)``, as from `grid`.
        sizes: tokens along each axis.
        onto: places along each axis of the table.

    Exact, where transformers compares float32 numbers: at some sizes it reads the place before (10 of 27 in 27, none
    of a table of 32 or 70).

    >>> nearest(grid(1, 3), (1, 3), onto=(1, 5))[:, 1]
    tensor([0, 1, 3])
    """
    sizes, onto = _sizes(coordinates, "sizes", sizes), _sizes(coordinates, "onto", onto)
    return floored(coordinates, times=onto, over=sizes)


def cropped(coordinates: Tensor, offset: float | Sequence[float], scale: float | Sequence[float] = 1.0) -> Tensor:
    """Where the tokens of a crop lie in the grid of the whole picture: offset + (i + ½) · scale − ½.

    Args:
        coordinates: ``(*batch, tokens, axes)``, as from `grid`, counted within the crop.
        offset: tokens of the whole before the crop's edge, one number or one an axis.
        scale: tokens of the whole that one token of the crop covers, likewise.

    >>> cropped(grid(1, 4), offset=(0, 3), scale=0.5)[:, 1]
    tensor([2.7500, 3.2500, 3.7500, 4.2500])
    """
    check_coordinates(coordinates)
    axes = coordinates.shape[-1]
    offsets, scales = numbers("offset", offset, axes), numbers("scale", scale, axes)
    if min(scales) <= 0:
        raise ValueError(f"scale must be above 0, got {shown(scale)}")
    # Twice offset + (i + ½) · scale − ½, over 2: the halves are whole then, as in `aligned`.
    plus = [2 * start + step - 1 for start, step in zip(offsets, scales, strict=True)]
    return affine(coordinates, times=[2 * step for step in scales], plus=plus, over=[2] * axes)


def affine(coordinates: Tensor, *, times: Sequence[float], plus: Sequence[float], over: Sequence[float]) -> Tensor:
    """(times · coordinate + plus) / over, an entry an axis; tokens without a place keep their mark."""
    check_coordinates(coordinates)
    dtype = torch.float64 if coordinates.dtype == torch.float64 else torch.float32
    values = coordinates.to(dtype)
    factor, summand, divisor = (values.new_tensor(list(entries)) for entries in (times, plus, over))
    return torch.where(wide(coordinates)[..., :1] == NO_POSITION, values, (values * factor + summand) / divisor)


def floored(coordinates: Tensor, *, times: Sequence[int], over: Sequence[int]) -> Tensor:
    """⌊times · coordinate / over⌋, int64, an entry an axis; tokens without a place keep their mark."""
    values = wide(coordinates)
    factor, divisor = values.new_tensor(list(times)), values.new_tensor(list(over))
    # Products of integers: a quotient of floats would fall below a whole number now and then.
    rows = torch.div(values * factor, divisor, rounding_mode="floor").long()
    return torch.where(values[..., :1] == NO_POSITION, values.long(), rows)


def counts_of(sizes: Sequence[int]) -> tuple[int, ...]:
    """Tokens along each axis of a grid that is to be made, checked."""
    if not sizes:
        raise ValueError(f"sizes must be positive, one per axis, got {sizes}")
    counts = tuple(count_of("sizes", size) for size in sizes)
    check_fits("sizes", len(counts), *counts)
    return counts


def _sizes(coordinates: Tensor, name: str, sizes: Sizes) -> tuple[int, ...]:
    """One size an axis of the coordinates, both checked."""
    check_coordinates(coordinates)
    return sizes_of(name, sizes, coordinates.shape[-1])
