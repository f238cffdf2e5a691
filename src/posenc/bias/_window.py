"""Tables of numbers for the differences of coordinates inside a window: how they are read, and made larger or smaller.

A table has a row for each difference −(W − 1) … W − 1 an axis, the last axis fastest, and a column a head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from posenc.dtypes import precision

Resize = Literal["bicubic", "bilinear", "geometric"]


def rows_of(window: Sequence[int]) -> int:
    """Differences inside a window.

    >>> rows_of((7, 7))
    169
    """
    return math.prod(2 * w - 1 for w in window)


def read(table: Tensor, offset: Tensor, window: Sequence[int]) -> Tensor:
    """The numbers ``(heads, ...)`` for differences ``(..., axes)``.

    Outside the window the nearest difference inside it counts, axis by axis; between whole ones those around are
    mixed, each by its nearness along every axis (for two axes: bilinear interpolation).

    Args:
        table: ``(rows, heads)``, of which the first `rows_of` the window are read.
        offset: integers, float32 or float64.
        window: coordinates inside it, an axis.
    """
    columns = table.to(precision(table, offset)).T.contiguous()
    places = [(x + (w - 1)).clamp(0, 2 * w - 2) for x, w in zip(offset.unbind(-1), window, strict=True)]
    if not offset.is_floating_point():
        return _look_up(columns, places, window)
    low = [x.floor() for x in places]
    high = [(x + 1).clamp(max=2 * w - 2) for x, w in zip(low, window, strict=True)]
    above = [x - lower for x, lower in zip(places, low, strict=True)]
    total = None
    for corner in product((False, True), repeat=len(window)):
        where = [(high if up else low)[axis].long() for axis, up in enumerate(corner)]
        nearness = math.prod([above[axis] if up else 1 - above[axis] for axis, up in enumerate(corner)], start=1.0)
        part = _look_up(columns, where, window) * nearness
        total = part if total is None else total + part
    assert total is not None
    return total


def resized_table(table: Tensor, old: Sequence[int], new: Sequence[int], mode: Resize) -> Tensor:
    """A table ``(rows_of(old), heads)`` for another window, ``(rows_of(new), heads)``; axis by axis.

    Args:
        mode: ``"bicubic"`` or ``"bilinear"`` resize the full table, as `torch.nn.functional.interpolate` does.
            ``"geometric"`` puts the old differences 0, 1, 1 + g, 1 + g + g², … apart, with the g of 1 … 1.5 at which
            the last comes to the new window's edge, and interpolates between them: near differences keep their numbers.
    """
    if mode not in get_args(Resize):
        raise ValueError(f"mode must be one of {get_args(Resize)}, got {mode!r}")
    if len(old) != len(new):
        raise ValueError(f"window must keep its {len(old)} axes, got {tuple(new)}")
    grid = table.double().view(*(2 * w - 1 for w in old), -1)
    for axis, (before, after) in enumerate(zip(old, new, strict=True)):
        if before != after:
            weights = _geometric(before, after) if mode == "geometric" else _stretch(before, after, mode)
            grid = torch.tensordot(grid, weights.to(grid.device), ([axis], [1])).movedim(-1, axis)
    return grid.reshape(rows_of(new), -1).to(table.dtype)


def _look_up(columns: Tensor, places: Sequence[Tensor], window: Sequence[int]) -> Tensor:
    """Columns of the transposed table for whole places 0 … 2W − 2 an axis."""
    index = torch.zeros_like(places[0])
    for place, w in zip(places, window, strict=True):
        index = index * (2 * w - 1) + place
    return columns.index_select(1, index.flatten()).view(-1, *index.shape)


def _stretch(old: int, new: int, mode: str) -> Tensor:
    """The weights ``(2·new − 1, 2·old − 1)`` of old differences in new ones, as PyTorch interpolates."""
    size = 2 * old - 1
    unit = torch.eye(size, dtype=torch.float64)[None, None]
    return F.interpolate(unit, size=(size, 2 * new - 1), mode=mode, align_corners=False)[0, 0].T


def _geometric(old: int, new: int) -> Tensor:
    """The same for the geometric rule; past the outermost old difference its number counts."""
    low, high = 1.0, 1.5
    while high - low > 1e-12 and old > 1:
        middle = (low + high) / 2
        low, high = (low, middle) if sum(middle**i for i in range(old - 1)) > new - 1 else (middle, high)
    past = [sum(low**i for i in range(count)) for count in range(old)]
    known = torch.tensor([*(-x for x in reversed(past[1:])), *past], dtype=torch.float64)
    offsets = torch.arange(-(new - 1), new, dtype=torch.float64).clamp(known[0], known[-1])
    left = (torch.searchsorted(known, offsets, right=True) - 1).clamp(max=max(2 * old - 3, 0))
    right = (left + 1).clamp(max=2 * old - 2)
    share = (offsets - known[left]) / (known[right] - known[left]).clamp(min=1e-300)
    unit = torch.eye(2 * old - 1, dtype=torch.float64)
    return torch.lerp(unit[left], unit[right], share.unsqueeze(-1))
