"""Rotation tables of default positions, kept for the next call: all of the process within one limit of bytes.

Calls without positions, and steps of a layer, take parts of numbers that they share
(`posenc.positions.checking.default_positions`), by which a table is known again without looking at a value. It is the
table that was computed first, so it equals a fresh computation bit for bit.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from posenc.encoding import Table
from posenc.positions.checking import Counted
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


def default_table(
    frequencies: RotationTable, counted: Counted, positions: Tensor, pairs: int, dtype: torch.dtype
) -> Table:
    """cos and sin ``(tokens, pairs)``.

    Args:
        frequencies: of ``(pairs,)``, the same object in every call.
        counted: what positions are part of.
        positions: of `default_positions`.
        pairs: of the frequencies.
        dtype: of the table.
    """
    numbers, start = counted
    key = (id(numbers), id(frequencies), dtype)
    known = _KEPT.get(key)
    if known is None:  # else it keeps both alive, so that nobody else can have their ids
        room = LIMIT - len(numbers) * (2 * pairs * dtype.itemsize + numbers.itemsize)
        captured = positions.is_cuda and torch.cuda.is_current_stream_capturing()
        if room < 0 or captured:  # what a graph computes is there only once it was replayed
            return frequencies.table(positions, dtype)
        with torch.inference_mode(False), torch.no_grad():
            known = _Kept(numbers, frequencies, frequencies.table(numbers, dtype))
        for oldest in list(_KEPT):  # other threads may come between: all steps hold for any state of the dictionary
            if sum(other.bytes for other in list(_KEPT.values())) <= room:
                break
            _KEPT.pop(oldest, None)
        _KEPT[key] = known
    cos, sin = known.table
    stop = start + len(positions)
    return (cos, sin) if stop - start == len(cos) else (cos[start:stop], sin[start:stop])
