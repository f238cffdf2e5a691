"""Layouts of the rotated pairs in a head, and weights that change from one to the other."""

from __future__ import annotations

from typing import get_args

import torch
from torch import Tensor

from posenc.frequencies.rotation import Layout


def permute_layout(weight: Tensor, head_dim: int, *, to: Layout, rotary_dim: int | None = None) -> Tensor:
    """Reorder the rows of a q or k projection so that its RoPE may use the other layout; an exact permutation.

    Args:
        weight: ``(heads · head_dim, ...)``: the projection's weight or bias, or a norm's weight over head_dim.
        head_dim: width of a head.
        to: the layout that the result is for; the weight must come from the other one.
        rotary_dim: channels of each head that are rotated, default all.

    >>> w = torch.randn(4 * 8, 32)
    >>> back = permute_layout(permute_layout(w, 8, to="half"), 8, to="interleaved")
    >>> torch.equal(back, w)
    True
    """
    rotary_dim = head_dim if rotary_dim is None else rotary_dim
    if weight.shape[0] % head_dim:
        raise ValueError(f"weight must have a multiple of head_dim = {head_dim} rows, got {tuple(weight.shape)}")
    if rotary_dim < 2 or rotary_dim % 2 or rotary_dim > head_dim:
        raise ValueError(f"rotary_dim must be even and in 2..head_dim = {head_dim}, got {rotary_dim}")
    if to not in get_args(Layout):
        raise ValueError(f"to must be one of {get_args(Layout)}, got {to!r}")
    channel = torch.arange(rotary_dim, device=weight.device)
    pairs = channel.view(-1, 2).T if to == "half" else channel.view(2, -1).T
    order = torch.cat([pairs.flatten(), torch.arange(rotary_dim, head_dim, device=weight.device)])
    heads = weight.shape[0] // head_dim
    return weight.reshape(heads, head_dim, *weight.shape[1:]).index_select(1, order).flatten(0, 1)
