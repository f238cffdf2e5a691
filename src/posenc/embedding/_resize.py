"""Tables over a grid: their layout in checkpoints, another size for them, and weights for reading between rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from posenc.arguments import check_number, check_sizes

Mode = Literal["bicubic", "bilinear"]
_SHARPNESS = -0.75  # PyTorch's a of the cubic kernel; its antialiased kernel has −0.5
_PREFIXES = (0, 1, 2)  # rows before the grid's that are guessed: none, a class token, a class and a distillation token


def resize_grid(
    table: Tensor,
    old: Sequence[int],
    new: Sequence[int],
    *,
    prefix: int = 0,
    mode: Mode = "bicubic",
    antialias: bool = False,
    align_corners: bool = False,
    offset: float = 0.0,
) -> Tensor:
    """A table of another size, by interpolation to that size: differentiable, in the table's dtype.

    Computed in float32 or better. The defaults match DeiT, MAE and transformers' ViT and DINOv2; timm has
    ``antialias=True``, big_vision and Qwen3-VL ``mode="bilinear", align_corners=True``, DINOv2's authors
    ``offset=0.1``, but for their models with registers, which have ``antialias=True``.

    Args:
        table: ``(prefix + product of old, dim)``, or with leading axes, as ``(1, rows, dim)`` in checkpoints. The last
            axis of the grid moves fastest.
        old: sizes of the grid, one an axis; one to three axes.
        new: sizes wanted, as many.
        prefix: rows before the grid's that stay as they are: class and distillation tokens.
        mode: ``"bicubic"``, for one or two axes, or ``"bilinear"``, which is linear along each of one to three axes.
        antialias: whether to smooth what becomes smaller, with a kernel (a = −0.5) that also differs where it grows.
        align_corners: whether the first and last rows stay, rather than the borders of the first and last patches.
        offset: places that the new grid is taken to have more along each axis, from 0 to 0.5; not with align_corners.

    Raises:
        ValueError: for rows that are not prefix + product of old, other numbers of axes, and modes that do not exist.

    >>> resize_grid(torch.tensor([[9.0], [0.0], [4.0]]), (2,), (4,), prefix=1, mode="bilinear").flatten()
    tensor([9., 0., 1., 3., 4.])
    """
    old, new = check_sizes("old", old), check_sizes("new", new)
    _check_resize(table, old, new, prefix, mode, antialias)
    _check_offset(offset, old, new, align_corners)
    wide = table.to(torch.promote_types(table.dtype, torch.float32))
    prefix_rows, rows = wide[..., :prefix, :], wide[..., prefix:, :]
    sizes = ((1, *old), (1, *new)) if len(old) == 1 else (old, new)  # one axis is an image of one row
    image = rows.reshape(-1, *sizes[0], table.shape[-1]).movedim(-1, 1)  # (any, dim, *old), as interpolate wants
    kind = "trilinear" if len(old) == 3 else mode
    # steps of old / (new + offset), which no size makes; what comes out has the size all the same
    factors = [(m + offset) / n for n, m in zip(*sizes, strict=True)] if offset else None
    image = F.interpolate(image, None if factors else sizes[1], factors, kind, align_corners, antialias=antialias)
    rows = image.movedim(1, -1).reshape(*table.shape[:-2], math.prod(new), table.shape[-1])
    return torch.cat([prefix_rows, rows], -2).to(table.dtype)


def taps(coordinate: Tensor, size: int, mode: Mode) -> list[tuple[Tensor, Tensor]]:
    """Rows of one axis that a coordinate lies between, int64 and inside the table, and the weight of each."""
    below = coordinate.floor()
    far = coordinate - below  # from the row below, in 0 … 1
    if mode == "bilinear":
        weights, first = [1 - far, far], 0
    else:
        weights, first = [_tail(far + 1), _centre(far), _centre(1 - far), _tail(2 - far)], -1
    start = below.long() + first
    return [((start + step).clamp(0, size - 1), weight) for step, weight in enumerate(weights)]


def layout_of(table: Tensor, size: Sequence[int] | None, prefix: int | None) -> tuple[Tensor, tuple[int, ...], int]:
    """A checkpoint's table as ``(prefix + product of size, dim)``, with the size and prefix given or inferred.

    See `LearnedGrid.from_table` for what is inferred.
    """
    if table.ndim < 2 or not table.is_floating_point() or (table.ndim > 2 and table.shape[0] != 1):
        raise ValueError(
            "table must be floating, (rows, dim), (1, rows, dim) or (1, *size, dim), "
            f"got {table.dtype} {tuple(table.shape)}"
        )
    target = None if size is None else check_sizes("size", size)
    if table.ndim > 3:
        shown = tuple(table.shape[1:-1])
        if target not in (None, shown) or prefix not in (None, 0):
            raise ValueError(
                f"table {tuple(table.shape)} has size {shown} and no prefix, got size {size} and prefix {prefix}: "
                "load it as it is, then resized(size)"
            )
        return table.reshape(-1, table.shape[-1]), shown, 0
    rows = table.reshape(-1, table.shape[-1])
    if target is None:
        return rows, *_square(len(rows), prefix)
    return rows, target, _before(len(rows), target, prefix)


def _check_resize(
    table: Tensor, old: tuple[int, ...], new: tuple[int, ...], prefix: int, mode: str, antialias: bool
) -> None:
    axes, rows = len(old), math.prod(old)
    if len(new) != axes or axes > 3:
        raise ValueError(f"old and new must have one to three sizes, as many each, got {old} and {new}")
    if prefix < 0 or table.ndim < 2 or table.shape[-2] != prefix + rows:
        raise ValueError(
            f"table must be (..., {prefix} + {rows}, dim) for prefix {prefix} and old {old}, got {tuple(table.shape)}"
        )
    if mode not in get_args(Mode):
        raise ValueError(f"mode must be one of {get_args(Mode)}, got {mode!r}")
    if axes == 3 and (mode == "bicubic" or antialias):
        raise ValueError("mode must be 'bilinear', without antialias, for three axes: PyTorch has no other there")


def _check_offset(offset: float, old: tuple[int, ...], new: tuple[int, ...], align_corners: bool) -> None:
    check_number("offset", offset, least=0, most=0.5)
    if offset and align_corners:
        raise ValueError(f"offset must be 0 with align_corners, which leaves no border to move, got {offset}")
    if offset and any(math.floor(n * ((m + offset) / n)) != m for n, m in zip(old, new, strict=True)):
        raise ValueError(f"offset must be 0 or large enough to count in addition to {new} places, got {offset}")


def _square(rows: int, prefix: int | None) -> tuple[tuple[int, int], int]:
    """Size and prefix of a square grid of so many rows; squares lie too far apart for two prefixes to fit."""
    for before in _PREFIXES if prefix is None else (prefix,):
        side = math.isqrt(max(0, rows - before))
        if side and before >= 0 and side * side + before == rows:
            return (side, side), before
    tried = "0, 1 or 2 prefix rows" if prefix is None else f"prefix {prefix}"
    raise ValueError(f"size cannot be inferred: {rows} rows do not form a square with {tried}; give size, and prefix")


def _before(rows: int, size: tuple[int, ...], prefix: int | None) -> int:
    """The prefix that a table of so many rows has in addition to a grid."""
    prefix_rows = rows - math.prod(size)
    if prefix_rows != prefix if prefix is not None else prefix_rows not in _PREFIXES:
        expected = "0, 1 or 2 prefix rows" if prefix is None else f"prefix {prefix}"
        raise ValueError(
            f"table has {rows} rows, but size {size} with {expected} makes another number: "
            "give the table's own size, then resized(size)"
        )
    return prefix_rows


def _centre(distance: Tensor) -> Tensor:
    """The cubic kernel at distances 0 … 1."""
    return ((_SHARPNESS + 2) * distance - (_SHARPNESS + 3)) * distance * distance + 1


def _tail(distance: Tensor) -> Tensor:
    """The cubic kernel at distances 1 … 2."""
    a = _SHARPNESS
    return ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
