"""Swin's relative position bias: one learned number a head for each difference of whole coordinates in a window.

    s_ij ← s_ij + table[index(p_i − p_j), h],   index(d) = Σ_a (d_a + W_a − 1) · Π_{c > a} (2·W_c − 1)

p coordinates, as many as the window W has axes, the first slowest; d counts from the key to the query. For two axes
index is (dy + Wh − 1)(2·Ww − 1) + dx + Ww − 1. Tokens further apart than the window's edge get what lies at the edge,
axis by axis: nothing learned is known of them. Tokens without a place have the bias 0.
Source: Liu et al., Swin Transformer: Hierarchical Vision Transformer using Shifted Windows, arXiv 2103.14030,
    section 3.2, eq. 4.
Checked against: the authors' WindowAttention (index, bias, whole layer), and their resizing of checkpoints' tables.
Departs from the source: any number of axes, tokens in any order, also outside the window (theirs is an index error);
    between whole coordinates the table is interpolated linearly.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from posenc.arguments import check_heads, check_sizes, check_table
from posenc.bias._window import Resize, read, resized_table, rows_of
from posenc.bias.offset import OffsetBias
from posenc.entry import Entry, square_window
from posenc.factory_kwargs import Device, place_parameters
from posenc.head_shares import HeadAxis


class SwinBias(OffsetBias):
    """Swin Transformer's table of biases.

    Args:
        num_heads: query heads.
        window: tokens along each axis, such as (7, 7); as many axes as positions have coordinates.
        device, dtype: of the parameters, as in torch.nn.

    The table is ``table`` (Π(2·W − 1), num_heads), Swin's ``relative_position_bias_table``.

    Raises:
        ValueError: for fewer than one head, or a window that is not one positive integer an axis.

    >>> from posenc.positions import grid
    >>> bias = SwinBias(3, window=(7, 7))
    >>> bias(grid(7, 7), grid(7, 7)).shape, bias.resized((12, 12)).table.shape
    (torch.Size([3, 49, 49]), torch.Size([529, 3]))
    """

    shared_by_layers = False

    def __init__(
        self,
        num_heads: int,
        *,
        window: Sequence[int],
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_heads("num_heads", num_heads)
        self.num_heads, self.window = num_heads, check_sizes("window", window)
        self.axes = len(self.window)
        check_table("window and num_heads", rows_of(self.window), num_heads)
        self.table = nn.Parameter(torch.empty(rows_of(self.window), num_heads))
        self.reset_parameters()
        place_parameters(self, device, dtype)

    def reset_parameters(self) -> None:
        """Draw the table anew, as Swin does: normal, standard deviation 0.02, cut off at ±2."""
        nn.init.trunc_normal_(self.table, std=0.02)

    def head_axes(self) -> dict[str, HeadAxis]:
        return {"table": HeadAxis(1)}

    def of_offset(self, offset: Tensor) -> Tensor:
        return read(self.table, offset, self.window)

    def resized(self, window: Sequence[int], *, mode: Resize = "bicubic") -> SwinBias:
        """A new bias for a window of another size, its table interpolated from this one.

        Args:
            window: tokens along each axis.
            mode: ``"bicubic"``, as Swin's authors; ``"bilinear"``; ``"geometric"``, as BEiT's (`BEiTBias.resized`).
        """
        new = SwinBias(self.num_heads, window=window).to(self.table)
        with torch.no_grad():
            new.table.copy_(resized_table(self.table, self.window, new.window, mode))
        return new.train(self.training)

    def extra_repr(self) -> str:
        return f"{self.num_heads}, window={self.window}"


ENTRY = Entry(
    name="swin",
    encoding=SwinBias,
    title="Swin: one learned number per difference of coordinates in a window",
    formula="s_ij ← s_ij + table[p_i − p_j, h]",
    source="Liu et al., arXiv 2103.14030, section 3.2, eq. 4",
    parameters="(2·height − 1) × (2·width − 1) × heads",
    cost="one lookup for every query and key; its gradient",
    past_training="differences outside the window use the table's edge; resized(window) interpolates the table",
    reads="distances",
    extension="the table resized by interpolation (resized)",
    used_in="Swin Transformer (arXiv 2103.14030)",
    avoid="for windows of many sizes: differences outside its table use the table's edge",
    defaults=lambda shape: square_window(shape, 7),
)
