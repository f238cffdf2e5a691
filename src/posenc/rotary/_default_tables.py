"""Rotation tables of default positions, kept for the next call: all of the process within one limit of bytes.

Calls without positions share one tensor of them (`posenc.positions.checking.default_positions`), by which a table is
known again without looking at a value. It is the table that was computed first, so it equals a fresh computation bit
for bit.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from posenc.encoding import Table
from posenc.rotary._rotation_table import RotationTable

LIMIT = 64 * 2**20  # bytes of all tables and positions that are kept


class _Kept(NamedTuple):
    positions: Tensor
    frequencies: RotationTable
    table: Table

    @property
    def bytes(self) -> int:
        return sum(t.untyped_storage().nbytes() for t in (self.positions, *self.table))


_KEPT: dict[tuple[int, int, torch.dtype], _Kept] = {}  # the oldest first


def default_table(frequencies: RotationTable, positions: Tensor, dtype: torch.dtype) -> Table:
    """cos and sin ``(tokens, pairs)``.

    Args:
        frequencies: of ``(pairs,)``, the same object in every call.
        positions: of `default_positions`, which `is_default` says.
        dtype: of the table.
    """
    key = (id(positions), id(frequencies), dtype)
    known = _KEPT.get(key)
    if known is not None:  # which keeps both alive, so that nobody else can have their ids
        return known.table
    with torch.inference_mode(False), torch.no_grad():
        kept = _Kept(positions, frequencies, frequencies.table(positions, dtype))
    room = LIMIT - kept.bytes
    if room >= 0:
        for oldest in list(_KEPT):  # other threads may come between: all steps hold for any state of the dictionary
            if sum(other.bytes for other in list(_KEPT.values())) <= room:
                break
            _KEPT.pop(oldest, None)
        _KEPT[key] = kept
    return kept.table
