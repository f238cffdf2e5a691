"""Rows of different contents as one batch, padded, or as one row, packed; positions of one coordinate or several."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from posenc.arguments import check_choice, check_several
from posenc.positions.checking import check_dtype

Side = Literal["left", "right"]


def padded(rows: Sequence[Tensor], *, side: Side = "left") -> tuple[Tensor, Tensor]:
    """Pad sequences to one batch: positions ``(batch, longest[, axes])``, 0 at padding, and which tokens are real.

    Args:
        rows: positions of each row, ``(tokens,)`` or ``(tokens, axes)``.
        side: where padding goes: ``"left"`` for decoding, which appends to the right.

    Returns:
        Positions, and bool ``(batch, longest)``, True at real tokens: ``attention_mask`` of `SelfAttention`.

    >>> padded([torch.arange(3), torch.arange(2)])
    (tensor([[0, 1, 2],
            [0, 0, 1]]), tensor([[ True,  True,  True],
            [False,  True,  True]]))
    """
    check_choice("side", side, get_args(Side))
    rows = _checked("rows", rows)
    real = [torch.ones(len(row), dtype=torch.bool, device=row.device) for row in rows]
    filled, mask = (pad_sequence(parts, batch_first=True, padding_side=side) for parts in (rows, real))
    return filled, mask


def packed(documents: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Pack documents into one sequence: positions ``(tokens[, axes])``, and segments ``(tokens,)`` that number them.

    Args:
        documents: positions of each, ``(tokens,)`` or ``(tokens, axes)``.

    >>> packed([torch.arange(3), torch.arange(2)])
    (tensor([0, 1, 2, 0, 1]), tensor([0, 0, 0, 1, 1]))
    """
    documents = _checked("documents", documents)
    lengths = torch.tensor([len(document) for document in documents], device=documents[0].device)
    numbers = torch.arange(len(documents), device=lengths.device)
    return torch.cat(documents), torch.repeat_interleave(numbers, lengths)


def _checked(name: str, rows: Sequence[Tensor]) -> list[Tensor]:
    """The rows as a list, checked; in the one dtype that holds the positions of each."""
    checked = check_several(name, rows)
    if not checked:
        raise ValueError(f"{name} must hold at least one tensor of positions")
    for row in checked:
        if not isinstance(row, Tensor) or row.ndim not in (1, 2) or row.shape[1:] != checked[0].shape[1:]:
            got = tuple(row.shape) if isinstance(row, Tensor) else type(row).__name__
            raise ValueError(f"{name} must all be (tokens,) or all (tokens, axes) with the same axes, got {got}")
        if row.device != checked[0].device:
            raise ValueError(f"{name} must all be on one device, got {checked[0].device} and {row.device}")
        check_dtype(name, row)
    dtype = reduce(torch.promote_types, (row.dtype for row in checked))
    return [row.to(dtype) for row in checked]
