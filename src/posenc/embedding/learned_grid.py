"""Learned embedding of a grid: one trained vector a place, interpolated between places.

    e(p) = table[prefix + p_0·n_1 + p_1]                                whole coordinates of a grid of n_0 × n_1
    e(p) = Σ_i w(p_0 − i_0) · w(p_1 − i_1) · table[prefix + row of i]   fractional ones; i over 4 × 4 places, or 2 × 2
    e(class token c) = table[c]                                         c < prefix; nothing added for others

p_a coordinate a in tokens, 0 ≤ p_a ≤ n_a − 1; the last axis moves fastest. Fractional coordinates may lie half a token
past the outer places, whose rows count on there: (i + 0.5)·n/m − 0.5, i = 0 … m − 1, is what resizing n places to m
reads. w is PyTorch's cubic kernel (a = −0.75) or the tent. Past that the encoding is undefined: an error.
Source: Dosovitskiy et al., ViT, arXiv 2010.11929, section 3.1, eq. 1, and section 3.2 for another size of image.
Checked against: F.interpolate as DeiT, MAE and transformers' ViT call it; timm's resample_abs_pos_embed; DINOv2's
    interpolate_pos_encoding; the LieRE authors' table of videos.
Departs from the source: nothing at whole coordinates; the kernel is PyTorch practice, the authors' own code resizes
    bilinearly with aligned corners (``resized(size, mode="bilinear", align_corners=True)``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import get_args

import torch
from torch import Tensor, nn

from posenc.arguments import check_number, check_sizes, check_table, check_whole
from posenc.embedding._join import by_axis, checked_positions, join
from posenc.embedding._resize import Mode, layout_of, resize_grid, taps
from posenc.encoding import EmbeddingEncoding
from posenc.entry import Entry, Shape
from posenc.factory_kwargs import Device, place_parameters
from posenc.positions import checking as position


class LearnedGrid(EmbeddingEncoding):
    """Add one learned vector per place of a grid to token embeddings, as Vision Transformers do.

    A token without a place (`positions.NO_POSITION`) that is numbered c reads row c of the prefix; where there is no
    such row, as for DINOv2's registers, it gets nothing added.

    Args:
        dim: width of x.
        size: places along each axis, such as (14, 14): row and column, or frame, row and column.
        prefix: rows before the grid's, of tokens without a place: 1 for a class token, 2 with DeiT's distillation
            token. Positions of one coordinate cannot number such tokens: at most 1 there.
        init_std: standard deviation of the initial rows (DeiT, timm, transformers 0.02; big_vision dim^−0.5).
        interpolation: ``"bicubic"`` or ``"bilinear"``, linear along each axis: for fractional coordinates.
        device, dtype: of the parameters, as in torch.nn.

    Raises:
        ValueError: at construction for sizes that do not fit; at a call for coordinates out of the table.

    >>> from posenc.positions import grid
    >>> LearnedGrid(8, size=(2, 3))(torch.zeros(1, 6, 8), grid(2, 3)).shape
    torch.Size([1, 6, 8])
    """

    table_bound = True

    def __init__(
        self,
        dim: int,
        *,
        size: Sequence[int],
        prefix: int = 0,
        init_std: float = 0.02,
        interpolation: Mode = "bicubic",
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.size = check_sizes("size", size)
        self.axes = len(self.size)
        check_whole("dim", dim)
        check_whole("prefix", prefix, least=0)
        if self.axes == 1 and prefix > 1:
            raise ValueError(f"prefix must be at most 1 for one axis, got {prefix}")
        check_table("size and dim", prefix + math.prod(self.size), dim)
        check_number("init_std", init_std, above=0)
        if interpolation not in get_args(Mode):
            raise ValueError(f"interpolation must be one of {get_args(Mode)}, got {interpolation!r}")
        self.dim, self.prefix, self.init_std, self.interpolation = dim, prefix, init_std, interpolation
        self.table = nn.Parameter(torch.empty(prefix + math.prod(self.size), dim))
        self.reset_parameters()
        place_parameters(self, device, dtype)

    @classmethod
    def from_table(
        cls,
        table: Tensor,
        size: Sequence[int] | None = None,
        prefix: int | None = None,
        *,
        init_std: float = 0.02,
        interpolation: Mode = "bicubic",
    ) -> LearnedGrid:
        """The encoding of a checkpoint's table, which is copied: ViT, DeiT, MAE, DINOv2, timm, SAM.

        Args:
            table: ``(prefix + product of size, dim)``, with or without a leading axis of 1; or ``(1, *size, dim)``.
            size: default a square of two axes. A flat table does not show its shape: one of 4 × 9 places has the rows
                of one of 6 × 6 and would be taken for that. Give the size of any grid that is not square.
            prefix: default what is left after the grid, 0 rows, 1 (class token) or 2 (DeiT's distilled models).
                Registers (DINOv2) have no rows in any table, so they do not count here.
            init_std, interpolation: as for the class.

        >>> LearnedGrid.from_table(torch.zeros(1, 197, 8))
        LearnedGrid(8, size=(14, 14), prefix=1, interpolation='bicubic')
        """
        rows, inferred_size, before = layout_of(table, size, prefix)
        encoding = cls(
            rows.shape[-1], size=inferred_size, prefix=before, init_std=init_std, interpolation=interpolation,
            device=rows.device, dtype=rows.dtype,
        )  # fmt: skip
        with torch.no_grad():
            encoding.table.copy_(rows)
        return encoding

    def reset_parameters(self) -> None:
        """Draw the table anew, normal."""
        nn.init.normal_(self.table, std=self.init_std)

    def resized(
        self,
        size: Sequence[int],
        *,
        mode: Mode | None = None,
        antialias: bool = False,
        align_corners: bool = False,
        offset: float = 0.0,
    ) -> LearnedGrid:
        """A copy for another size of grid, its rows interpolated; the given one stays as it is. See `resize_grid`.

        Args:
            size: places along each axis, as many axes as now.
            mode, antialias, align_corners, offset: as for `resize_grid`; mode is ``interpolation`` by default.
        """
        rows = resize_grid(
            self.table.detach(), self.size, size, prefix=self.prefix,
            mode=self.interpolation if mode is None else mode, antialias=antialias, align_corners=align_corners,
            offset=offset,
        )  # fmt: skip
        resized = LearnedGrid.from_table(
            rows, size, self.prefix, init_std=self.init_std, interpolation=self.interpolation
        )
        resized.table.requires_grad_(self.table.requires_grad)
        return resized.train(self.training)

    def encode(self, positions: Tensor) -> Tensor:
        """The encoding alone, ``(*batch, tokens, dim)``, in the table's dtype; between rows in float32 or better."""
        at = by_axis(positions, self.axes).unbind(-1)
        away = position.has_no_position(positions, self.axes)
        number = at[-1].long() if self.axes > 1 else torch.zeros_like(away, dtype=torch.long)
        inside = torch.where(away, number >= 0, self._contains(at))
        if not torch.compiler.is_compiling() and positions.device.type == "cpu" and not bool(inside.all()):
            raise ValueError(self._outside(positions[~inside][0]))
        other = torch.where(away, number.clamp(0, max(0, self.prefix - 1)), -1)  # the row of a token without a place
        other = torch.where(inside, other, self.table.shape[0])  # no such row: the lookup's own check reports it
        rows = self._between(at, away, other) if positions.is_floating_point() else self._row(at, other, self.table)
        return rows.masked_fill((away & (number >= self.prefix)).unsqueeze(-1), 0.0)

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        return join(x, self.encode(checked_positions(x, positions, self.dim, "add", self.axes)), "add")

    def extra_repr(self) -> str:
        return f"{self.dim}, size={self.size}, prefix={self.prefix}, interpolation={self.interpolation!r}"

    def _contains(self, at: Sequence[Tensor]) -> Tensor:
        """Whether all coordinates lie in the table."""
        past = 0.5 if at[0].is_floating_point() else 0  # a float would round large integers
        held = [(c >= -past) & (c <= size - 1 + past) for c, size in zip(at, self.size, strict=True)]
        return torch.stack(held).all(0)

    def _between(self, at: Sequence[Tensor], away: Tensor, other: Tensor) -> Tensor:
        """Rows at fractional coordinates, one neighbour after another: memory for one row a token."""
        dtype = torch.promote_types(torch.promote_types(self.table.dtype, at[0].dtype), torch.float32)
        table = self.table.to(dtype)
        near = [  # at 0 the weights are exactly 0 and 1
            taps(c.to(dtype).masked_fill(away, 0.0), size, self.interpolation)
            for c, size in zip(at, self.size, strict=True)
        ]
        out = torch.zeros((), dtype=dtype, device=table.device)
        for corner in product(*near):
            weight = corner[0][1]
            for _, more in corner[1:]:
                weight = weight * more
            out = out + weight.unsqueeze(-1) * self._row([index for index, _ in corner], other, table)
        return out

    def _row(self, at: Sequence[Tensor], other: Tensor, table: Tensor) -> Tensor:
        """Rows of ``table`` at whole coordinates, or those that ``other`` names where it is not −1."""
        index = torch.zeros_like(other)
        for coordinate, size in zip(at, self.size, strict=True):
            index = index * size + coordinate.long()
        return nn.functional.embedding(torch.where(other < 0, index + self.prefix, other), table)

    def _outside(self, wrong: Tensor) -> str:
        return (
            f"positions must be in a table of {' × '.join(map(str, self.size))} places, each coordinate from 0 to its "
            f"size − 1 (fractional ones half a token further), got {wrong.tolist()}: resized(size) makes a larger table"
        )


def square(shape: Shape) -> dict[str, object]:
    """The smallest square grid that has a place for max_length tokens."""
    tokens = shape.get("max_length")
    if not isinstance(tokens, int) or tokens < 1:
        return {}
    side = math.isqrt(tokens - 1) + 1
    return {"size": (side, side)}


ENTRY = Entry(
    name="learned_grid",
    encoding=LearnedGrid,
    title="Learned embedding of a grid",
    formula="x_t ← x_t + table[place of p], interpolated between places",
    source="Dosovitskiy et al., arXiv 2010.11929, section 3.1",
    parameters="(prefix + positions) × dim",
    cost="one lookup and addition per token, once; 16 at fractional positions of two axes",
    past_training="undefined beyond the table; a larger grid needs a resized table",
    reads="positions",
    extension="the table resized by interpolation (resized)",
    used_in="ViT (arXiv 2010.11929); CLIP's image encoder (arXiv 2103.00020)",
    avoid="for images of many sizes: ViT interpolates its rows and then fine-tunes (arXiv 2010.11929, section 3.2)",
    defaults=square,
    exempt={"far_positions": "a table ends"},
)
