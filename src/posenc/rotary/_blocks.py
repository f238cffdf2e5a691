"""Heads as blocks of channels, rotated by matrices.

    x = [ block 0 | block 1 | … | rest ],   block k of head h ← R[h, k]·block k,   the rest passes through

Query heads share the rotation of their key head, so rotations are made once for each key head and meet all heads of
its group; no rotation is ever repeated in memory.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor
from torch.autograd import forward_ad

from posenc.arguments import check_whole
from posenc.constants import constant
from posenc.encoding import no_autocast
from posenc.rotary._rotate import rotate_pairs


def check_block(block: int, head_dim: int) -> None:
    """Raise a ValueError unless blocks are even and fit into a head."""
    check_whole("head_dim", head_dim)
    check_whole("block", block)
    if block % 2 or block > head_dim:
        raise ValueError(
            f"block must be even and in 2..head_dim = {head_dim}, got {block}: a rotation of an odd number of channels "
            "leaves one direction where it is"
        )


def grouped(x: Tensor, rows: int) -> Tensor:
    """``x`` (batch, heads, tokens, width) as (batch, rows, heads of a row, tokens, width)."""
    return x.unflatten(1, (rows, -1))  # type: ignore[no-untyped-call, no-any-return]


def rotate_pairs_of_groups(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate neighbouring channels of ``x`` by cos and sin ``(*batch, rows, tokens, pairs)``."""
    rows = cos.shape[-3]
    if rows == x.shape[1]:
        return rotate_pairs(x, cos, sin, "interleaved")
    rotated = rotate_pairs(grouped(x, rows), cos.unsqueeze(-3), sin.unsqueeze(-3), "interleaved")
    return rotated.flatten(1, 2)


def rotate_blocks(x: Tensor, rotations: Tensor) -> Tensor:
    """Blocks of ``x`` (batch, heads, tokens, width) times rotations ``(*batch, rows, tokens, blocks, b, b)``."""
    rows, tokens, blocks, width = rotations.shape[-5:-1]
    width_rotated = blocks * width
    split = grouped(x[..., :width_rotated].to(rotations.dtype), rows).unflatten(-1, (blocks, width))  # type: ignore[no-untyped-call]
    with no_autocast(x.device.type):
        if rotations.ndim == 5:  # all rows of the batch are rotated alike: they and the heads of a group are columns
            columns = split.permute(1, 3, 4, 5, 0, 2).flatten(-2)
            rotated = (rotations @ columns).unflatten(-1, (x.shape[0], -1)).permute(4, 0, 5, 1, 2, 3)
        else:
            columns = split.permute(0, 1, 3, 4, 5, 2)
            rotated = (rotations @ columns).permute(0, 1, 5, 2, 3, 4)
    rotated = rotated.reshape(*x.shape[:2], tokens, width_rotated).to(x.dtype)
    return rotated if width_rotated == x.shape[-1] else torch.cat([rotated, x[..., width_rotated:]], -1)


def differentiated_otherwise() -> bool:
    """Whether torch.func's transforms or forward mode are active, which this library's operators do not support."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def from_upper(upper: Tensor, block: int) -> Tensor:
    """Skew matrices ``(..., b, b)`` from their entries above the diagonal ``(..., b(b − 1)/2)``, row by row."""
    padded = torch.cat([upper, torch.zeros_like(upper[..., :1])], -1)
    index, sign = _from_upper(block)
    flat = constant(index, torch.int64, upper.device).flatten()
    signs = constant(sign, upper.dtype, upper.device)
    return padded.index_select(-1, flat).unflatten(-1, (block, block)) * signs  # type: ignore[no-untyped-call, no-any-return]


@functools.cache
def _from_upper(block: int) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[float, ...], ...]]:
    """Which entry above the diagonal each entry of the matrix is, one past the last for none, and its sign."""
    count = block * (block - 1) // 2
    index, sign = [[count] * block for _ in range(block)], [[0.0] * block for _ in range(block)]
    at = 0
    for row in range(block):
        for column in range(row + 1, block):
            index[row][column] = index[column][row] = at
            sign[row][column], sign[column][row] = 1.0, -1.0
            at += 1
    return tuple(map(tuple, index)), tuple(map(tuple, sign))
