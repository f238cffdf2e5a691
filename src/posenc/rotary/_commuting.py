"""Rotations whose generators commute: a basis for each block, in which every token only rotates pairs.

    R(p) = exp(t(p) S) = Q · (pair j rotated by t(p)·w_j) · Qᵀ,   t(p) = Σ_axis c_axis p_axis,   S = −Sᵀ

One small eigenproblem a block gives Q and w for all tokens, queries and keys alike; a token costs what RoPE costs, and
two products with Q.
"""

from __future__ import annotations

import torch
from torch import Tensor

from posenc.encoding import Table, no_autocast
from posenc.frequencies.phase import TensorFrequencies
from posenc.rotary._axes import of_sums
from posenc.rotary._basis import dense_of, skew_basis
from posenc.rotary._basis_rotation import rotate_in_basis
from posenc.rotary._blocks import rotate_pairs_of_groups


def commuting_table(places: Tensor, generators: Tensor, times: Tensor, dtype: torch.dtype) -> Table:
    """What `commuting_rotate` needs: S, t, w, Q, cos and sin; for blocks of 2 only cos and sin.

    Args:
        places: coordinates ``(*batch, tokens, axes)``.
        generators: S ``(rows, blocks, b, b)``, skew, in the widest dtype.
        times: what each coordinate adds to t, ``(rows or 1, axes, blocks)``, likewise.
        dtype: of the table.
    """
    if generators.shape[-1] == 2:
        return of_sums(places, _frequencies(times, generators[..., 1:, 0]), dtype)
    basis, rates = skew_basis(generators.detach())
    cos, sin = (t.to(dtype) for t in of_sums(places, _frequencies(times.detach(), rates), times.dtype))
    with no_autocast(places.device.type):
        of_tokens = places.to(times.dtype).unsqueeze(-3) @ times
    return generators.to(dtype), of_tokens, rates, dense_of(basis.to(dtype)), cos, sin


def commuting_rotate(x: Tensor, table: Table) -> Tensor:
    """Rotate ``x`` (batch, heads, tokens, width) by a `commuting_table`; channels past its blocks pass through."""
    if len(table) == 2:
        return rotate_pairs_of_groups(x, *table)
    width_rotated = table[3].shape[-1]
    if width_rotated == x.shape[-1]:
        return rotate_in_basis(x, *table)
    return torch.cat([rotate_in_basis(x[..., :width_rotated], *table), x[..., width_rotated:]], -1)


def _frequencies(times: Tensor, rates: Tensor) -> list[TensorFrequencies]:
    """t · w of each axis, ``(rows, 1, pairs)``: pairs of a block share its t."""
    theta = times.unsqueeze(-1) * rates.unsqueeze(-3)  # (rows, axes, blocks, pairs of a block)
    return [TensorFrequencies(of_axis) for of_axis in theta.flatten(-2).unsqueeze(-2).unbind(1)]
