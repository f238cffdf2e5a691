"""How exactly a rotation depends on differences of positions alone: the largest entry of R(x)ᵀ R(y) − R(0)ᵀ R(y − x).

R(0) is the identity, except where a convention counts from 1 (Llama 4).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from posenc.encoding import RotaryEncoding


class Exactness(NamedTuple):
    """Largest absolute entries over all pairs of positions and all heads."""

    relativity: float  # of R(x)ᵀ R(y) − R(0)ᵀ R(y − x): 0 if scores depend on the difference alone
    orthogonality: float  # of R(x)ᵀ R(x) − 1: 0 if lengths are kept


def exactness(
    encoding: RotaryEncoding, x: Tensor, y: Tensor, *, num_heads: int, head_dim: int, dtype: torch.dtype = torch.float64
) -> Exactness:
    """Measure an encoding at pairs of positions.

    Args:
        encoding: any rotation.
        x, y: the pairs, each ``(pairs,)`` or ``(pairs, axes)``. Where they are floating, differences should be exact.
        num_heads, head_dim: its heads and their width.
        dtype: in which it rotates, and is seen; differences of what it gives are taken in float64.

    >>> from posenc import RoPE
    >>> found = exactness(RoPE(8), torch.arange(5), torch.arange(5) + 7, num_heads=1, head_dim=8)
    >>> found.relativity < 1e-12
    True
    """
    at_x, at_y, at_0, apart = (
        _matrices(encoding, p, num_heads, head_dim, dtype) for p in (x, y, torch.zeros_like(x), y - x)
    )
    unit = torch.eye(head_dim, dtype=torch.float64)
    return Exactness(
        float((at_x.mT @ at_y - at_0.mT @ apart).abs().amax()),
        float((at_x.mT @ at_x - unit).abs().amax()),
    )


@torch.no_grad()
def _matrices(encoding: RotaryEncoding, positions: Tensor, num_heads: int, head_dim: int, dtype: torch.dtype) -> Tensor:
    """R of each position and head, float64 ``(pairs, heads, head_dim, head_dim)``: columns are rotated unit vectors."""
    pairs = len(positions)
    units = torch.eye(head_dim, dtype=dtype).repeat(pairs, 1)  # for each position all unit vectors, as tokens
    x = units.expand(1, num_heads, -1, -1)
    table = encoding.table(positions.repeat_interleave(head_dim, 0), like=x)
    rotated = encoding.rotate(x, table)[0].view(num_heads, pairs, head_dim, head_dim)
    return rotated.movedim(1, 0).mT.double()
