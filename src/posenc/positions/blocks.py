"""Windows of a grid: which one each token lies in, and the order in which tokens of a window lie together."""

from __future__ import annotations

import torch
from torch import Tensor

from posenc.arguments import check_flag
from posenc.positions.checking import check_coordinates, has_no_position
from posenc.positions.grids import counts_of, floored, grid
from posenc.positions.validation import Sizes, sizes_of


def windows(coordinates: Tensor, sizes: Sizes, window: Sizes) -> Tensor:
    """The number of the window that each token lies in, int64 ``(*batch, tokens)``: ``segments`` of `attention`.

    Windows start at 0 on every axis and are counted row by row; where they do not divide the grid, the last ones are
    smaller, as in Qwen2.5-VL's vision tower (windows of 8 × 8 patches). Tokens without a place have a window of their
    own, −1.

    Args:
        coordinates: ``(*batch, tokens, axes)``, as from `grid`.
        sizes: tokens along each axis.
        window: tokens along each axis of a window; 1 along frames, where each frame has windows of its own.

    >>> windows(grid(2, 5), (2, 5), window=2)
    tensor([0, 0, 1, 1, 2, 0, 0, 1, 1, 2])
    """
    check_coordinates(coordinates)
    axes = coordinates.shape[-1]
    sizes, edges = sizes_of("sizes", sizes, axes), sizes_of("window", window, axes)
    number = torch.zeros(coordinates.shape[:-1], dtype=torch.int64, device=coordinates.device)
    at = floored(coordinates, times=[1] * axes, over=edges)
    # Mixed radix, one digit an axis: how many windows an axis has is its size over the window's, rounded up.
    for along, size, edge in zip(at.unbind(-1), sizes, edges, strict=True):
        number = number * -(-size // edge) + along
    return number.masked_fill(has_no_position(coordinates if axes > 1 else coordinates[..., 0], axes), -1)


def block_order(*sizes: int, block: Sizes = 2, partial: bool = False) -> Tensor:
    """Which token of a grid comes when blocks of neighbours lie together: ``(product of sizes,)``, an index.

    ``grid(*sizes)[block_order(*sizes)]``, and the tokens themselves by the same index, lie as in Qwen-VL's vision
    towers, which merge blocks of 2 × 2 tokens; for video ``block=(1, 2, 2)``. Qwen2.5-VL's windows reorder the merged
    blocks once more: ``block_order(height // 2, width // 2, block=4, partial=True)``.

    Args:
        sizes: tokens along each axis.
        block: tokens along each axis of a block.
        partial: whether blocks at the border may be smaller; else the blocks must divide the grid.

    >>> block_order(2, 4)
    tensor([0, 1, 4, 5, 2, 3, 6, 7])
    """
    sizes = counts_of(sizes)
    blocks = sizes_of("block", block, len(sizes))
    if not check_flag("partial", partial) and any(size % edge for size, edge in zip(sizes, blocks, strict=True)):
        raise ValueError(f"sizes must be multiples of block = {blocks}, got {sizes}; or give partial=True")
    return windows(grid(*sizes), sizes, blocks).argsort(stable=True)
