"""Rotations by key head, the helper level: each key head has a table of its own, which the queries of its group share.

    q of head h ← R_g(p) q,   k of head g ← R_g(p) k,   g = floor(h · num_kv_heads / num_heads)

A group must share one rotation: q·k sees R_g(p)ᵀ R_g(p′) only if both sides were rotated alike. ``per_head=False`` is
one table for all heads.
"""

from __future__ import annotations

from torch import Tensor

from posenc.arguments import MOST_AXES, TRANSPOSE_HINT, check_kv_heads, check_whole
from posenc.encoding import RotaryEncoding, Table
from posenc.frequencies.rotation import Layout
from posenc.rotary._axes import check_head
from posenc.rotary._rotate import check_table, rotate_pairs


class PerHeadRotation(RotaryEncoding):
    """Helper level. Subclasses make a `table`, cos and sin ``(*batch, rows, tokens, pairs)`` unless they `rotate`."""

    layout: Layout

    def __init__(self, head_dim: int, *, num_heads: int, num_kv_heads: int | None, axes: int = 1) -> None:
        super().__init__()
        check_whole("head_dim", head_dim)
        check_whole("axes", axes, most=MOST_AXES)
        self.num_heads, self.num_kv_heads = num_heads, check_kv_heads(num_heads, num_kv_heads)
        self.head_dim, self.axes = head_dim, axes
        self.per_head = True  # or as a subclass is told

    @property
    def _rows(self) -> int:
        """How many heads have a rotation of their own."""
        return self.num_kv_heads if self.per_head else 1

    def rotate(self, x: Tensor, table: Table) -> Tensor:
        """Rotate queries or keys ``(batch, heads, tokens, head_dim)``; result in the dtype of ``x``."""
        self._check_heads(x)
        check_table(table)
        cos, sin = table
        if self._rows in (1, x.shape[1]):
            return rotate_pairs(x, cos, sin, self.layout)
        # a view of the heads by group meets the table with an axis of size 1: no table is repeated in memory
        grouped = x.unflatten(1, (self._rows, -1))  # type: ignore[no-untyped-call]
        return rotate_pairs(grouped, cos.unsqueeze(-3), sin.unsqueeze(-3), self.layout).flatten(1, 2)

    def _check_heads(self, x: Tensor) -> None:
        """Raise a ValueError unless queries or keys have the width of the encoding, and heads that share its rows."""
        name, heads = type(self).__name__, x.shape[1]
        check_head(name, self.head_dim, x)
        if self.num_heads % heads or heads % self._rows:
            hint = TRANSPOSE_HINT if heads != x.shape[2] == self.num_heads else ""
            raise ValueError(
                f"num_kv_heads: this {name} has {self._rows} rotations for {self.num_heads} query heads, got a tensor "
                f"of {heads} heads; queries must share the rotation of their key: give num_kv_heads{hint}"
            )

    def extra_repr(self) -> str:
        grouped = "" if self.num_kv_heads == self.num_heads else f", num_kv_heads={self.num_kv_heads}"
        return f"{self.head_dim}, num_heads={self.num_heads}{grouped}"
