"""One tile: some heads, a block of queries, a range of keys in reversed order; and how distances lie in it.

Keys are counted from the newest, r = keys − 1 − j. Query c and column x of a tile are n = offset + c + x tokens apart:
a function of the distance is constant along anti-toeplitz_view, which strided views read and write without a copy.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

# Zeros more than a view by distance needs, whose rows BLAS takes if they do not overlap. An odd step between rows: with
# 2,048 numbers all rows share few lines of the cache, and T5 with gradients takes 1.27 times as long.
GAP = 1
QUERIES = 64  # of a tile; half of a causal block's own square is wasted
LONG = 8192  # keys from which on memory is spared: tiles are cut smaller, keys copied once


class Tile(NamedTuple):
    """Where a tile of scores ``(rows of the batch, heads, queries, columns)`` lies in the whole."""

    batch: slice
    heads: slice  # query heads
    kv: slice  # their key heads
    start: int  # queries start … stop − 1
    stop: int
    near: int  # reversed keys near … far − 1
    far: int
    queries: int  # of the whole call
    keys: int

    @property
    def offset(self) -> int:
        """The distance of query 0 and column 0, in tokens; negative: the key is later than the query."""
        return self.start - self.queries + 1 + self.near

    @property
    def rows(self) -> int:
        """Queries of the tile."""
        return self.stop - self.start

    @property
    def columns(self) -> int:
        """Keys of the tile."""
        return self.far - self.near

    def of(self, tensor: Tensor) -> Tensor:
        """The part ``(batch | 1, heads | 1, ...)`` of a tensor of the whole call; axes of size 1 are shared."""
        return tensor[slice(None) if tensor.shape[0] == 1 else self.batch][
            :, slice(None) if tensor.shape[1] == 1 else self.heads
        ]

    def add_to(self, total: Tensor, part: Tensor, *index: slice) -> None:
        """Add ``part`` (batch, heads, ...) to where it belongs in ``total``, summed over axes that are shared there."""
        shared = [axis for axis in (0, 1) if total.shape[axis] == 1]
        part = part.sum(shared, keepdim=True) if shared else part
        self.of(total)[(slice(None), slice(None), *index)].add_(part)


def toeplitz_view(row: Tensor, tile: Tile) -> Tensor:
    """A function of the distance n, ``(heads, entries)`` from n = −(queries − 1) on, as ``(heads, rows, columns)``."""
    first = tile.offset + tile.queries - 1
    return row[:, first : first + tile.rows + tile.columns - 1].unfold(-1, tile.columns, 1)


def with_zero_tail(scores: Tensor) -> Tensor:
    """Uninitialised numbers of the same shape, whose rows are followed by zeros, as `skew_view` needs them."""
    rows, columns = scores.shape[-2:]
    wide = scores.new_empty(*scores.shape[:-1], columns + rows + GAP)
    wide[..., columns:] = 0
    return wide[..., :columns]


def skew_view(scores: Tensor, entries: int) -> Tensor:
    """``(..., rows, entries)`` with scores[c, x] at entry c + x, zeros elsewhere: a view of what `with_zero_tail` made.

    Seen with rows that begin one number earlier each, a row is moved by its index, and what it shows of its neighbour
    are the zeros behind that.
    """
    rows, step = scores.shape[-2], scores.stride(-2)
    if step != scores.shape[-1] + rows + GAP:
        raise RuntimeError("scores must come from with_zero_tail()")
    return _view(scores, rows, entries, step - 1, 0)


def unskew_view(entries: Tensor, columns: int) -> Tensor:
    """scores[c, x] = entries[c, c + x], ``(..., rows, columns)``: a view of ``(..., rows, rows + columns − 1)``."""
    return _view(entries, entries.shape[-2], columns, entries.shape[-1] + 1, 0)


def add_skewed(scores: Tensor, entries: Tensor) -> None:
    """scores[c, x] += entries[c, c + x], in place, wherever ``entries`` (..., rows, distances) reaches."""
    rows, columns, width = *scores.shape[-2:], entries.shape[-1]
    if width == rows + columns - 1:  # every score has an entry of its own: read them through a view
        scores.add_(unskew_view(entries.contiguous(), columns))
        return
    seen = min(columns, width)
    skewed = entries.new_zeros(*entries.shape[:-1], width + rows - 1)
    _view(skewed, rows, width, width + rows - 2, rows - 1).copy_(entries)
    scores[..., :seen].add_(skewed[..., rows - 1 : rows - 1 + seen])


def _view(x: Tensor, rows: int, columns: int, step: int, first: int) -> Tensor:
    """``(..., rows, columns)`` of a tensor whose rows begin ``step`` numbers apart from number ``first``."""
    return x.as_strided((*x.shape[:-2], rows, columns), (*x.stride()[:-2], step, 1), x.storage_offset() + first)


def hidden_future(offset: int, rows: int, columns: int, *, like: Tensor) -> Tensor:
    """−inf at the keys after each query, 0 elsewhere, ``(rows, columns)``, for a tile that begins at ``offset``."""
    apart = torch.arange(rows, device=like.device)[:, None] + torch.arange(columns, device=like.device) + offset
    return torch.zeros(rows, columns, dtype=like.dtype, device=like.device).masked_fill_(apart < 0, -torch.inf)


def suffix_sums(x: Tensor, block: int = 64) -> Tensor:
    """Σ over this and all later columns: within blocks by one product with a triangle, as no total is subtracted.

    A sum from the other end minus a prefix would leave the rounding of large sums in small ones.
    """
    columns = x.shape[-1]
    if columns <= block or columns % block:
        return x.flip(-1).cumsum(-1).flip(-1)
    pieces = x.view(*x.shape[:-1], columns // block, block)
    inside = pieces @ torch.ones(block, block, dtype=x.dtype, device=x.device).tril_()
    later = inside[..., 0].flip(-1).cumsum(-1).flip(-1)
    inside[..., :-1, :].add_(later[..., 1:, None])
    return inside.view(x.shape)
