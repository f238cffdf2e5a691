"""Rotation tables that are kept: of decode steps, for a block of positions at once, and of default positions.

A decode step's table has so few numbers that the overhead of calls dominates. Steps count on, and layers share a
module: so the second call at a position, or at the next one, computes the cos and sin of its whole block of 64
positions, and the calls that follow look theirs up. The values equal a fresh computation bit for bit.

Only fixed frequencies, one integer position on the CPU and eager calls use the cache (the caller ensures that):
elsewhere, reading the value of a position would make a device synchronize, or is impossible under a tracer.

Calls without positions share one tensor of default positions for each size (`posenc.positions._counted`), by which
`CountedTables` knows the table again, without looking at a value. It is the tensor that was computed first, so it
equals a fresh computation bit for bit.
"""

from __future__ import annotations

import torch
from torch import Tensor

from posenc.encoding import Table
from posenc.positions._counted import is_counted
from posenc.rotary._rotate import doubled
from posenc.rotary._rotation_table import RotationTable

BLOCK = 64  # positions
TABLES, NUMBERS = 4, 2**20  # tables of default positions that are kept, and numbers of one


class DecodeTableCache:
    """The newest block of positions of one module, as `rotate_doubled` takes them. Copies start empty."""

    def __init__(self) -> None:
        self._last = -2
        self._blocks: dict[torch.dtype, tuple[int, list[tuple[Tensor, Tensor]]]] = {}

    def __getstate__(self) -> dict[str, object]:
        return {"_last": -2, "_blocks": {}}

    def find(self, table: RotationTable, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor] | None:
        """Doubled cos and sin ``(1, 2 · pairs)`` of one position; None where the cache does not apply.

        Args:
            table: of ``(pairs,)``, the same in every call.
            positions: of one token, whatever its shape.
            dtype: of the table.
        """
        return self.at(table, int(positions), dtype) if _readable(positions) else None

    def at(self, table: RotationTable, position: int, dtype: torch.dtype) -> tuple[Tensor, Tensor] | None:
        """`find` of a position that is known to be a number on the CPU."""
        near, self._last = 0 <= position - self._last <= 1, position
        number, row = divmod(position, BLOCK)
        block = self._blocks.get(dtype)
        if block is None or block[0] != number:
            if not near:
                return None
            with torch.inference_mode(False), torch.no_grad():
                block_positions = torch.arange(number * BLOCK, (number + 1) * BLOCK, device="cpu")
                # No slices in a step; one row each, as a fresh table has it, which activation checkpointing compares.
                cos, sin = (torch.split(t, 1) for t in doubled(*table.table(block_positions, dtype)))
                block = self._blocks[dtype] = (number, list(zip(cos, sin, strict=True)))
        return block[1][row]


def _readable(positions: Tensor) -> bool:
    """Whether the value of one position may be read at no cost."""
    return (
        positions.is_cpu
        and positions.numel() == 1
        and positions.dtype in (torch.int64, torch.int32)
        and type(positions) is Tensor
        and not torch._C._are_functorch_transforms_active()
        and torch._C._len_torch_dispatch_stack() == 0
        and not torch._C._get_tracing_state()
    )


class CountedTables:
    """The newest tables of default positions of one module. Copies start empty."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, torch.dtype], tuple[Tensor, Table, Table]] = {}

    def __getstate__(self) -> dict[str, object]:
        return {"_kept": {}}

    def find(self, table: RotationTable, positions: Tensor, dtype: torch.dtype) -> tuple[Table, Table] | None:
        """cos and sin ``(tokens, pairs)``, and both `doubled`; None unless these are default positions.

        Args:
            table: of ``(pairs,)``, the same in every call.
            positions: as they came.
            dtype: of the table.
        """
        if not is_counted(positions):
            return None
        known = self._kept.get((id(positions), dtype))
        if known is not None and known[0] is positions:
            return known[1:]
        with torch.inference_mode(False), torch.no_grad():
            per_pair = table.table(positions, dtype)
            both = per_pair, doubled(*per_pair)
        if per_pair[0].numel() <= NUMBERS:
            if len(self._kept) >= TABLES:
                self._kept.clear()
            self._kept[id(positions), dtype] = (positions, *both)
        return both
