"""MHRoPE: each head rotates by one coordinate of a token, time, row or column, with all frequencies of RoPE.

    angle[h, j] = theta_j · p_axis(h),   theta_j = base^(−2j / rotary_dim)
    heads (2, 3, 3) of 8 key heads:   axis(h) = t t h h h w w w

M-RoPE divides the frequencies of every head among the axes, so that no axis has all of them; here each axis has, in
heads of its own. Query heads read the axis of their key head. Heads that are left over do not rotate. Text has one
number on all axes, so every head that rotates is rotated as under RoPE, bit for bit. Scalings act as on RoPE; a
length-dependent one spans the largest coordinate + 1 of a row.
Source: Huang et al., Revisiting Multimodal Positional Encoding in Vision-Language Models, arXiv 2510.23095, section on
    frequency allocation; JJJYmmm/Multimodal-RoPEs at cd413b9, freq_allocation/mhrope.py.
Checked against: that code's tables.
Departs from the source: positions have their axis of coordinates last, and tokens without a place are not rotated.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from posenc.arguments import check_several, check_whole, shown
from posenc.constants import constant
from posenc.encoding import Table
from posenc.entry import Entry, Shape
from posenc.frequencies.rotation import Layout
from posenc.frequencies.spectrum import Spectrum
from posenc.head_shares import HeadShare
from posenc.positions import checking as position
from posenc.positions.videos import on_all_axes
from posenc.rotary._axes import coordinates
from posenc.rotary._per_head import PerHeadRotation
from posenc.rotary.mrope import largest
from posenc.rotary.rope import RoPE


class MHRoPE(PerHeadRotation):
    """Multi-head RoPE: whole key heads read time, rows or columns, each with every frequency.

    Args:
        head_dim: width of a head.
        num_heads: query heads.
        num_kv_heads: key heads, default ``num_heads``; must divide it.
        heads: how many key heads read time, rows and columns, in this order; at most ``num_kv_heads`` in all, and heads
            that are left over do not rotate. The source has (2, 3, 3) of 8. One number for each axis, two or more.
        base: wavelengths run from 2π to about 2π · base.
        layout: ``"half"`` as the source, or ``"interleaved"``; see `RoPE`.
        rotary_dim: leading rotated channels, even, default all.
        scaling: a `Scaling` such as ``YaRN(...)``, as for `RoPE`, with the same frequencies in all heads.

    Raises:
        ValueError: for more heads than ``num_kv_heads``, for fewer than two axes, for a scaling that gives heads
            frequencies of their own, and for what `RoPE` refuses.

    >>> from posenc.positions import Image, Text, multimodal
    >>> rope = MHRoPE(64, num_heads=16, num_kv_heads=8, heads=(2, 3, 3))
    >>> at = multimodal([Text(4), Image(2, 3)], design="mhrope", reset=True)
    >>> q, k = torch.randn(1, 16, 10, 64), torch.randn(1, 8, 10, 64)
    >>> rope(q, k, at, at)[0].shape
    torch.Size([1, 16, 10, 64])
    """

    plain_positions = True

    def __init__(
        self,
        head_dim: int,
        *,
        num_heads: int,
        num_kv_heads: int | None = None,
        heads: Sequence[int],
        base: float = 1_000_000.0,
        layout: Layout = "half",
        rotary_dim: int | None = None,
        scaling: nn.Module | None = None,
    ) -> None:
        super().__init__(head_dim, num_heads=num_heads, num_kv_heads=num_kv_heads)
        self.rope = RoPE(head_dim, base=base, layout=layout, rotary_dim=rotary_dim, scaling=scaling)
        if self.rope._fewest is not None:
            raise ValueError("scaling must give all heads the same frequencies: here a head has an axis, not a base")
        self.heads_of_axes = tuple(check_several("heads", heads))
        for count in self.heads_of_axes:
            check_whole("heads", count, least=0)
        if len(self.heads_of_axes) < 2 or sum(self.heads_of_axes) > self.num_kv_heads:
            raise ValueError(
                f"heads must be key heads of each of two or more axes, at most num_kv_heads = {self.num_kv_heads} in "
                f"all, got {shown(heads)}"
            )
        self.axes, self.layout = len(self.heads_of_axes), layout
        self.length_dependent = self.rope.length_dependent

    def order(self) -> list[int]:
        """The axis of each key head; −1: the head does not rotate."""
        read = [axis for axis, count in enumerate(self.heads_of_axes) for _ in range(count)]
        return read + [-1] * (self.num_kv_heads - len(read))

    def _keep_heads(self, share: HeadShare) -> None:
        kept = self.order()[share.key_heads(self.num_kv_heads)]  # in the order of the axes still
        super()._keep_heads(share)
        self.heads_of_axes = tuple(kept.count(axis) for axis in range(self.axes))

    def spectrum(self, length: int | None = None) -> Spectrum:
        """The frequencies in force, of every head; see `RoPE.spectrum`."""
        return self.rope.spectrum(length)

    def cacheable(self, length: int | None = None) -> bool:
        """Whether keys may be cached rotated; see `RoPE.cacheable`."""
        return self.rope.cacheable(length)

    def table(self, positions: Tensor, length: int | Tensor | None = None, *, like: Tensor | None = None) -> Table:
        """cos and sin ``(*batch, num_kv_heads, tokens, pairs)``, times the gain; see `RoPE.table`."""
        if isinstance(positions, Tensor) and positions.ndim == 1:  # of text, where all coordinates are equal
            positions = on_all_axes(positions, self.axes)
        places, unplaced, dtype = coordinates(positions, self.axes, like)
        rotation = self.rope._constant_table or self.rope._table_spanning(largest(places), length)
        # one more axis, at 0, serves heads that do not rotate: one gather, no case of their own
        of_axes = torch.cat([places, torch.zeros_like(places[..., :1])], -1).movedim(-1, 0)
        cos, sin = rotation.table(of_axes, dtype)  # (axes + 1, *batch, tokens, pairs), the last one at rest
        if self.rope.scaling is not None:
            cos = cos.masked_fill(unplaced, 1.0)
        chosen = constant([axis % (self.axes + 1) for axis in self.order()], torch.int64, cos.device)
        return cos[chosen].movedim(0, -3), sin[chosen].movedim(0, -3)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        q_pos: Tensor,
        k_pos: Tensor,
        length: int | tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Rotate q and k; see `RotaryEncoding.forward`. Undeclared, each row spans its largest key."""
        if length is None and self.length_dependent:
            span = position.span(k_pos if k_pos.ndim == 1 else largest(k_pos))
            length = (span, span)
        q_length, k_length = length if isinstance(length, tuple) else (length, length)
        q_table = self.table(q_pos, q_length, like=q)
        k_table = q_table if k_pos is q_pos and q_length is k_length else self.table(k_pos, k_length, like=k)
        return self.rotate(q, q_table), self.rotate(k, k_table)

    def extra_repr(self) -> str:
        """Head, heads of each axis and of queries."""
        return f"{super().extra_repr()}, heads={self.heads_of_axes}"


def _heads(shape: Shape) -> dict[str, object]:
    """Key heads in the proportions of the source, 3/8 for rows and for columns; below three, two axes."""
    key_heads = shape.get("num_kv_heads") or shape.get("num_heads")
    if not isinstance(key_heads, int):
        return {}
    if key_heads < 3:
        return {"heads": (1, key_heads - 1)}
    places = max(key_heads * 3 // 8, 1)
    return {"heads": (key_heads - 2 * places, places, places)}


ENTRY = Entry(
    name="mhrope",
    encoding=MHRoPE,
    title="MHRoPE: time, row and column each have key heads of their own, with all frequencies",
    formula="q, k ← R(p) q, R(p) k,  pairs of head h rotated by p_axis(h)·theta_j,  theta_j = base^(−2j/rotary_dim)",
    source="Huang et al., arXiv 2510.23095",
    parameters="none",
    cost="a table per key head; one rotation of q and k per layer",
    past_training="angles never seen in training; a large image takes fewer positions than it has tokens",
    reads="distances",
    extension="any scaling of its frequencies",
    used_in="its paper's own models; no other is known to us",
    avoid="with fewer key heads than axes: a key head reads one axis",
    defaults=_heads,
)
