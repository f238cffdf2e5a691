"""M-RoPE: the pairs of one RoPE are divided among time, row and column of tokens in a stream of text and images.

    angle_j = p_axis(j) · theta_j,   theta_j = base^(−2j / rotary_dim)
    sections (3, 2, 2):  chunked  T T T H H W W     interleaved  T H W T H W T     time last (2, 2, 3)  H W H W T T T

Positions are (time, row, column), integers or fractions. Text has one number in all three and is rotated as under RoPE,
bit for bit. Text after an image goes on behind the largest coordinate so far. Scalings of the frequencies act as on
RoPE; a length-dependent one spans the largest coordinate + 1 of a row.
Source: Wang et al., Qwen2-VL, arXiv 2409.12191, section 2.1. Interleaved: Qwen3-VL, arXiv 2511.21631, section 2.
    Chunked on adjacent channels: GLM-4.1V, arXiv 2507.01006. Time last: Ernie 4.5's released code.
Checked against: transformers' Qwen2-VL, Qwen2.5-VL and Qwen3-VL; GLM-4V and Ernie 4.5 VL were read.
Departs from the source: positions have their axis of coordinates last. Tokens without a place are not rotated and have
    no gain, where the source has no such tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from posenc.arguments import check_choice, check_several, check_whole, shown
from posenc.encoding import RotaryEncoding, Table
from posenc.entry import Entry, Shape
from posenc.frequencies.rotation import Layout, MRoPESpec
from posenc.frequencies.spectrum import Spectrum
from posenc.positions import checking as position
from posenc.positions.videos import on_all_axes
from posenc.rotary._axes import Chosen, coordinates
from posenc.rotary._rotate import rotate_both
from posenc.rotary._rotation_table import alone
from posenc.rotary.rope import RoPE


class MRoPE(RotaryEncoding, MRoPESpec):
    """Multimodal rotary embedding: one RoPE, each pair of which is rotated by time, row or column.

    Args:
        head_dim: width of a head.
        sections: how many pairs read time, rows, columns; in all rotary_dim / 2. Qwen2-VL has (16, 24, 24), Qwen3-VL
            (24, 20, 20). Chunked ones may be more than ``axes``: section i reads coordinate i mod axes.
        order: in place of ``sections``: the axis of each pair, −1 for one that does not rotate, as VideoRoPE, HoPE and
            MM-RoPE deal their pairs out (`pair_order`).
        interleaved: False for chunks (Qwen2-VL, Qwen2.5-VL, GLM-4V); True deals pairs out alternately (Qwen3-VL): row
            and column take every third pair while their sections last, time all others.
        time_last: sections are (rows, columns, time): rows and columns alternate, then time (Ernie 4.5 VL, interleaved
            layout).
        axes: coordinates of a position.
        base: wavelengths run from 2π to about 2π · base; a checkpoint's own (rope_theta), default Qwen2-VL's.
        layout: ``"half"`` as Qwen's, ``"interleaved"`` as GLM-4V and Ernie; see `RoPE`.
        rotary_dim: leading rotated channels, even, default all; half of them for GLM-4V.
        scaling: a `Scaling` such as ``YaRN(...)``, as for `RoPE`.

    Raises:
        ValueError: for sections that do not add up to the pairs, are fewer than the axes, or more than they unless
            chunked; for interleaved and time_last at once; for what `RoPE` refuses.

    >>> rope = MRoPE(128, sections=(16, 24, 24))
    >>> text = torch.arange(5)[:, None].expand(5, 3)
    >>> torch.equal(rope.table(text)[0], RoPE(128, base=1e6).table(torch.arange(5))[0])
    True
    """

    plain_positions = True
    rope: RoPE

    def __init__(
        self,
        head_dim: int,
        *,
        sections: Sequence[int] | None = None,
        order: Sequence[int] | None = None,
        interleaved: bool = False,
        time_last: bool = False,
        axes: int = 3,
        base: float = 1_000_000.0,
        layout: Layout = "half",
        rotary_dim: int | None = None,
        scaling: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.rope = RoPE(head_dim, base=base, layout=layout, rotary_dim=rotary_dim, scaling=scaling)
        self._set_order(sections, order, interleaved, time_last, axes)
        self._rests = -1 in self.order()  # pairs that read a coordinate of their own, which is 0
        self._chosen = Chosen([self.axes if axis < 0 else axis for axis in self.order()])
        self._constant_table = None if self.rope._constant_table is None else alone(self.rope._constant_table)
        self._per_head = self.rope._fewest is not None

    def spectrum(self, length: int | None = None) -> Spectrum:
        """The frequencies in force; see `RoPE.spectrum`."""
        return self.rope.spectrum(length)

    def cacheable(self, length: int | None = None) -> bool:
        """Whether keys may be cached rotated; see `RoPE.cacheable`."""
        return self.rope.cacheable(length)

    def table(self, positions: Tensor, length: int | Tensor | None = None, *, like: Tensor | None = None) -> Table:
        """cos and sin ``(*batch, tokens, pairs)``, times the gain; see `RoPE.table`."""
        if isinstance(positions, Tensor) and positions.ndim == 1:  # of text, where all coordinates are equal
            positions = on_all_axes(positions, self.axes)
        places, unplaced, dtype = coordinates(positions, self.axes, like)
        waves = self._constant_table or alone(self.rope._table_spanning(largest(places), length))
        if self._rests:
            places = torch.cat([places, torch.zeros_like(places[..., :1])], -1)
        cos, sin = self._chosen.table(places, waves, dtype, per_head=self._per_head)
        if self.rope.scaling is None:
            return cos, sin
        return cos.masked_fill(unplaced.unsqueeze(-3) if self._per_head else unplaced, 1.0), sin

    def rotate(self, x: Tensor, table: Table) -> Tensor:
        """Rotate queries or keys ``(batch, heads, tokens, head_dim)``; result in the dtype of ``x``."""
        return self.rope.rotate(x, table)

    def rotate_(self, x: Tensor, table: Table) -> Tensor:
        """`rotate` in the memory of ``x``; see `RoPE.rotate_`."""
        return self.rope.rotate_(x, table)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        q_pos: Tensor,
        k_pos: Tensor,
        length: int | tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Rotate q and k; see `RotaryEncoding.forward`. Undeclared, each row spans its largest key."""
        q_pos, k_pos = (on_all_axes(p, self.axes) if p.ndim == 1 else p for p in (q_pos, k_pos))
        if length is None and self.length_dependent:
            span = position.span(largest(k_pos))
            length = (span, span)
        q_length, k_length = length if isinstance(length, tuple) else (length, length)
        q_table = self.table(q_pos, q_length, like=q)
        k_table = q_table if k_pos is q_pos and q_length is k_length else self.table(k_pos, k_length, like=k)
        if self._per_head:  # one table for all heads has rows for as many heads as there are
            return self.rotate(q, q_table), self.rotate(k, k_table)
        return rotate_both(self.rotate, q, k, q_table, k_table)

    extra_repr = MRoPESpec.extra_repr


def largest(positions: Tensor) -> Tensor:
    """The largest coordinate of each token, ``(*batch, tokens)``."""
    return positions.amax(-1)


def pair_order(
    design: str, sections: Sequence[int], *, code: Literal["comparison", "authors"] = "comparison"
) -> list[int]:
    """The axis of each pair (0 time, 1 row, 2 column, −1 none) in the position designs of vision-language models.

    Args:
        design: a design of `posenc.positions.multimodal`: "mrope", "omnirope" and "circlerope" (time, row, column in
            chunks), "mrope-i" and "ilrope" (interleaved), "videorope" (rows and columns alternate on the fast
            pairs, time has the slow ones), "hope" (the same, and the pairs of time rest), "mm-rope" (two pairs of time,
            then row and column three times, repeated). "mhrope" deals out heads (`MHRoPE`), "v2pe" has one
            coordinate (`RoPE`).
        sections: how many pairs read time, rows and columns; of "mm-rope" their sum alone counts.
        code: whose "videorope" and "hope". "comparison": pair 0 belongs to time, rows and columns begin one pair later,
            and columns have one pair fewer than their section, though a comment there says otherwise. "authors": rows
            and columns have all the fast pairs, as VideoRoPE's and HoPE's own code and checkpoints.

    Source: Huang et al., arXiv 2510.23095, in its code (JJJYmmm/Multimodal-RoPEs at cd413b9, freq_allocation);
        VideoRoPE arXiv 2502.05173 (Wiselnn570/VideoRoPE at 7712ca3), HoPE arXiv 2505.20444 (hrlics/HoPE at 85b76c0),
        MM-RoPE of Lumos-1 arXiv 2507.08801.

    >>> pair_order("videorope", (2, 3, 3))
    [0, 1, 2, 1, 2, 1, 0, 0]
    >>> pair_order("videorope", (2, 3, 3), code="authors")
    [1, 2, 1, 2, 1, 2, 0, 0]
    """
    if design in ("mhrope", "v2pe"):
        other = "MHRoPE deals out whole heads" if design == "mhrope" else "it has one coordinate, which RoPE rotates by"
        raise ValueError(f"design must be a design that assigns pairs to axes, got {design!r}: {other}")
    check_choice("design", design, (*_CHUNKED, *_INTERLEAVED, "videorope", "hope", "mm-rope"))
    check_choice("code", code, ("comparison", "authors"))
    counts = check_several("sections", sections)
    if len(counts) != 3:
        raise ValueError(f"sections must be pairs of time, row and column, got {shown(sections)}")
    for count in counts:
        check_whole("sections", count, least=0)
    pairs = sum(counts)
    if design == "mm-rope":
        return [(0, 0, 1, 2, 1, 2, 1, 2)[pair % 8] for pair in range(pairs)]
    if design in _CHUNKED or design in _INTERLEAVED:
        return MRoPESpec(2 * pairs, sections=counts, interleaved=design in _INTERLEAVED).order()
    time = 0 if design == "videorope" else -1
    if code == "authors":  # spatial pairs alternate whatever the share of each
        return [1 + pair % 2 if pair < counts[1] + counts[2] else time for pair in range(pairs)]
    order = [time] * pairs
    for axis, count in ((1, counts[1]), (2, counts[2])):
        stop = 2 * count if axis == 1 else 2 * count - 1
        order[axis:stop:2] = [axis] * len(order[axis:stop:2])
    return order


_CHUNKED, _INTERLEAVED = ("mrope", "omnirope", "circlerope"), ("mrope-i", "ilrope")


def _sections(shape: Shape) -> dict[str, object]:
    """Shares of the pairs in Qwen2-VL's proportions: 3/8 for rows and for columns, the rest for time."""
    width = shape.get("rotary_dim", shape.get("head_dim"))
    if not isinstance(width, int):
        return {}
    places = width // 2 * 3 // 8
    return {"sections": (width // 2 - 2 * places, places, places)}


ENTRY = Entry(
    name="mrope",
    encoding=MRoPE,
    title="M-RoPE: time, row and column share the pairs of one RoPE",
    formula="q, k ← R(p) q, R(p) k,  pairs rotated by p_axis(j)·theta_j,  theta_j = base^(−2j/rotary_dim)",
    source="Wang et al., arXiv 2409.12191, section 2.1",
    parameters="none",
    cost="one rotation of q and k per layer",
    past_training="angles never seen in training; a large image takes fewer positions than it has tokens",
    reads="distances",
    extension="any scaling of its frequencies",
    used_in="Qwen2-VL (arXiv 2409.12191); Qwen2.5-VL (arXiv 2502.13923); Ideogram 4 (diffusers 0.42)",
    avoid="for text alone: with equal positions on all axes it is RoPE",
    defaults=_sections,
)
