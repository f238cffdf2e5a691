"""Rows of a learned table, by position: the lookup and its validation."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def rows_at(
    positions: Tensor, table: Tensor, *, offset: int = 0, padding_idx: int | None = None, remedy: str = ""
) -> Tensor:
    """Rows ``(*batch, tokens, dim)`` of ``table`` in its dtype.

    Args:
        positions: integers ``(*batch, tokens)``.
        table: ``(offset + positions that have a row, dim)``.
        offset: rows before the one of position 0.
        padding_idx: a row that gets no gradient.
        remedy: what the message for a position out of the table advises.

    Raises:
        ValueError: for fractional positions; in eager mode on the host also for positions that have no row.
    """
    if positions.is_floating_point():
        raise ValueError(f"positions must be integers: a table has no rows between rows; got {positions.dtype}")
    if not torch.compiler.is_compiling() and positions.device.type == "cpu":
        _check_range(positions, -offset, table.shape[0] - offset, remedy)  # elsewhere the lookup's own check reports it
    return nn.functional.embedding(positions.long() + offset, table, padding_idx)


def _check_range(positions: Tensor, first: int, end: int, remedy: str) -> None:
    if positions.numel() == 0:
        return
    low, high = (int(edge) for edge in positions.aminmax())
    if low < first or high >= end:
        wrong = high if high >= end else low
        raise ValueError(f"positions must be in {first}..{end - 1}, got {wrong}: a learned table ends{remedy}")
