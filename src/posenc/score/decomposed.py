"""Decomposed relative positions: learned vectors of the difference along each axis, which queries read.

    s_ij ← s_ij + Σ_a q_i · tables_a[ clip(p_i,a − p_j,a, −(W_a − 1), W_a − 1) + W_a − 1 ]

p coordinates, as many as the window W has axes; differences count from the key to the query. tables_a (2·W_a − 1,
head_dim), shared by the heads of a layer and separate for each layer: along an axis what `Shaw` has along a text, but q
is not scaled here, while q·k is. Beyond the window's edge the edge counts, axis by axis; between whole differences the
two rows around are mixed. Tokens without a place get and give nothing, as the class token in MViTv2.
Keys pooled s-fold, as in MViTv2, lie at s·j + s − 1 where queries lie at 0, 1, 2, …
Source: Li et al., MViTv2: Improved Multiscale Vision Transformers for Classification and Detection, arXiv 2112.01526,
    section 4.1, eq. 4; ViTDet arXiv 2203.16527; SAM arXiv 2304.02643.
Checked against: transformers' SamVisionAttention and VitDetAttention: whole layers, of the tables' size and of another;
    and pooled keys.
Departs from the source: any number of axes, tokens in any order; other sizes are `resized` once, not at every call.
    Where queries are not a multiple of keys, or keys of queries, the source cuts off the fractions of differences.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posenc.arguments import check_number, check_sizes, check_table, check_whole
from posenc.encoding import Context, ScoreEncoding
from posenc.entry import Entry, square_window
from posenc.factory_kwargs import Device, place_parameters
from posenc.positions import checking as position
from posenc.score._inputs import check_width
from posenc.structure import LowRank
from posenc.tracing import tracing


class DecomposedRelative(ScoreEncoding):
    """Decomposed relative positions of MViTv2, ViTDet and SAM.

    Args:
        head_dim: width of a query head.
        window: tokens along each axis, such as (14, 14); as many axes as positions have coordinates.
        init_std: standard deviation of the initial tables, normal and cut off at ±2; SAM starts from 0.
        device, dtype: of the parameters, as in torch.nn.

    The tables of all axes, one behind another, are the parameter ``table`` (Σ (2·W − 1), head_dim).

    Raises:
        ValueError: at construction for sizes below 1; at a call for another head width or number of coordinates.

    >>> from posenc.positions import grid
    >>> from posenc import attention
    >>> relative, (q, k, v) = DecomposedRelative(64, window=(14, 14)), torch.randn(3, 1, 4, 12, 64)
    >>> attention(q, k, v, [relative], q_pos=grid(3, 4), k_pos=grid(3, 4), causal=False).shape
    torch.Size([1, 4, 12, 64])
    """

    lr_multiplier = 10.0
    shared_by_layers = False

    def __init__(
        self,
        head_dim: int,
        *,
        window: Sequence[int],
        init_std: float = 0.02,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_whole("head_dim", head_dim)
        check_number("init_std", init_std, least=0)
        self.head_dim, self.window, self.init_std = head_dim, check_sizes("window", window), init_std
        self.axes = len(self.window)
        check_table("window and head_dim", sum(2 * w - 1 for w in self.window), head_dim)
        self.table = nn.Parameter(torch.empty(sum(2 * w - 1 for w in self.window), head_dim))
        self.reset_parameters()
        place_parameters(self, device, dtype)

    @property
    def tables(self) -> tuple[Tensor, ...]:
        """The part of ``table`` of each axis, ``(2·W − 1, head_dim)``: SAM's ``rel_pos_h`` and ``rel_pos_w``."""
        return torch.split(self.table, [2 * w - 1 for w in self.window])

    def reset_parameters(self) -> None:
        """Draw the tables anew."""
        if self.init_std:
            nn.init.trunc_normal_(self.table, std=self.init_std)
        else:
            nn.init.zeros_(self.table)

    @torch.no_grad()
    def from_official(self, *tables: Tensor) -> DecomposedRelative:
        """Take over one layer's tables, for two axes ``rel_pos_h`` and ``rel_pos_w``; resized where sizes differ."""
        if len(tables) != self.axes or any(t.ndim != 2 or t.shape[1] != self.head_dim for t in tables):
            got = [tuple(t.shape) for t in tables]
            raise ValueError(f"tables must be {self.axes}, one an axis, each (rows, {self.head_dim}), got {got}")
        self.table.copy_(torch.cat([_stretched(t, 2 * w - 1) for t, w in zip(tables, self.window, strict=True)]))
        return self

    def forward(self, scores: Tensor, context: Context) -> Tensor:
        check_width(self, self.head_dim, context.q)
        q_pos, q_lost = self._placed("q_pos", context.q_pos, scores.dtype)
        k_pos, k_lost = self._placed("k_pos", context.k_pos, scores.dtype)
        by_rows = context.q @ self.table.to(context.q.dtype).T  # (batch, heads, queries, rows of all axes)
        added = torch.zeros_like(scores)
        for axis, (by_row, size) in enumerate(
            zip(torch.split(by_rows, [2 * w - 1 for w in self.window], -1), self.window, strict=True)
        ):
            row = q_pos[..., axis].unsqueeze(-1) - k_pos[..., axis].unsqueeze(-2) + (size - 1)
            added = added + _read(by_row, row.clamp(0, 2 * size - 2).unsqueeze(-3).expand_as(scores))
        lost = q_lost.unsqueeze(-1) | k_lost.unsqueeze(-2)
        return scores + added.masked_fill(lost.unsqueeze(-3), 0.0)

    def structure(self, context: Context, *, future: bool) -> tuple[LowRank] | None:
        if tracing() or context.q.shape[-1] != self.head_dim or context.q.device.type == "meta":
            return None
        wide = torch.promote_types(context.q.dtype, torch.float32)
        (q_pos, q_lost), (k_pos, k_lost) = (
            self._placed(name, places, wide) for name, places in (("q_pos", context.q_pos), ("k_pos", context.k_pos))
        )
        if q_pos.ndim > 2 or k_pos.ndim > 2 or k_pos.requires_grad or q_pos.requires_grad:
            return None
        by_rows, left, right = context.q.to(wide) @ self.table.to(wide).T, [], []
        for axis, by_row in enumerate(torch.split(by_rows, [2 * w - 1 for w in self.window], -1)):
            here, which = torch.unique(k_pos[..., axis], return_inverse=True)  # coordinates that keys have
            size = self.window[axis]
            row = (q_pos[..., axis].unsqueeze(-1) - here + (size - 1)).clamp(0, 2 * size - 2)
            left.append(_read(by_row, row.expand(*by_row.shape[:-1], -1)).masked_fill(q_lost.unsqueeze(-1), 0.0))
            member = torch.arange(len(here), device=which.device).unsqueeze(-1) == which
            right.append((member & ~k_lost).to(wide))
        return (LowRank(torch.cat(left, -1), torch.cat(right)),)

    def _placed(self, name: str, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Coordinates ``(*batch, tokens, axes)``, fractions as precise as scores, 0 for no place; and where that is."""
        if self.axes > 1 and (positions.ndim < 2 or positions.shape[-1] != self.axes):
            raise ValueError(f"{name} must be (*batch, tokens, {self.axes}), got {tuple(positions.shape)}")
        lost = position.has_no_position(positions, self.axes)
        places = position.wide(positions if self.axes > 1 else positions.unsqueeze(-1))
        if places.is_floating_point():
            places = places.to(torch.promote_types(places.dtype, dtype))
        return places.masked_fill(lost.unsqueeze(-1), 0), lost

    def resized(self, window: Sequence[int]) -> DecomposedRelative:
        """New tables for a window of another size, interpolated from these as SAM and ViTDet do: linearly, by rows.

        Args:
            window: tokens along each axis.

        >>> DecomposedRelative(8, window=(14, 14)).resized((64, 48)).tables[1].shape
        torch.Size([95, 8])
        """
        new = DecomposedRelative(self.head_dim, window=window, init_std=self.init_std)
        if new.axes != self.axes:
            raise ValueError(f"window must keep its {self.axes} axes, got {tuple(new.window)}")
        return new.to(self.table).from_official(*self.tables).train(self.training)

    def extra_repr(self) -> str:
        return f"{self.head_dim}, window={self.window}"


def _stretched(table: Tensor, rows: int) -> Tensor:
    """A table of as many rows, interpolated linearly."""
    return F.interpolate(table.double().T.unsqueeze(0), size=rows, mode="linear")[0].T


def _read(by_row: Tensor, row: Tensor) -> Tensor:
    """What queries read in a row for each key, ``(batch, heads, queries, keys)``; fractions mix two neighbours."""
    if not row.is_floating_point():
        return by_row.gather(-1, row.long())
    low = row.floor()
    above = (row - low).to(by_row.dtype)
    first, second = (by_row.gather(-1, at.long()) for at in (low, (low + 1).clamp(max=by_row.shape[-1] - 1)))
    return first * (1 - above) + second * above


ENTRY = Entry(
    name="decomposed",
    encoding=DecomposedRelative,
    title="Decomposed relative positions of MViTv2, ViTDet and SAM",
    formula="s_ij ← s_ij + Σ_axis q_i·table_axis[clip(p_i − p_j)]",
    source="Li et al., arXiv 2112.01526, section 4.1, eq. 4",
    parameters="head_dim × Σ_axis (2·window − 1) per layer",
    cost="a product of q with each axis' table, one gather per axis over all logits",
    past_training="differences outside the window use the tables' edge; resized(window) interpolates the tables",
    reads="distances and content",
    extension="the tables resized by interpolation (resized)",
    used_in="MViTv2 (arXiv 2112.01526); ViTDet (arXiv 2203.16527); SAM (arXiv 2304.02643)",
    avoid="for windows of many sizes: differences outside its tables use the tables' edge",
    defaults=lambda shape: square_window(shape, 14),
)
