"""BEiT's relative position bias: a number a head for each difference in a window, and three for the class token.

    s_ij ← s_ij + table[index(p_i − p_j), h]      both tokens have a place; index as Swin's
    s_ij ← s_ij + table[N + n, h]                 n = 0: the query has none, 1: the key, 2: neither has

N = Π(2·W_a − 1) differences, p coordinates, as many as the window W has axes, the first slowest. Class and register
tokens have no place: their first coordinate is `posenc.positions.NO_POSITION`. Tokens further apart than the window's
edge get what lies at the edge, axis by axis.
Source: Bao et al., BEiT: BERT Pre-Training of Image Transformers, arXiv 2106.08254, appendix (relative positional
    embeddings, a line of the hyperparameters); the table and its three rows follow the authors' code.
Checked against: transformers' BeitRelativePositionBias, also at another size; timm's resize_rel_pos_bias_table.
Departs from the source: any number of axes and of tokens without a place; between whole coordinates the table is
    interpolated linearly. transformers mixes up height and width of windows that are no squares; this does not.
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


class BEiTBias(OffsetBias):
    """BEiT's table of biases, with rows for tokens without a place.

    Args:
        num_heads: query heads.
        window: tokens along each axis of the image, such as (14, 14); as many axes as positions have coordinates.
        device, dtype: of the parameters, as in torch.nn.

    The table is ``table`` (Π(2·W − 1) + 3, num_heads), BEiT's ``relative_position_bias_table``; its last rows are those
    from a token without a place, to one, and between two. BEiT has one in each layer, or one for all layers.

    Raises:
        ValueError: for fewer than one head, or a window that is not one positive integer an axis.

    >>> from posenc.positions import NO_POSITION, grid
    >>> image = torch.cat([torch.tensor([[NO_POSITION, 0]]), grid(14, 14)])
    >>> BEiTBias(12, window=(14, 14))(image, image).shape
    torch.Size([12, 197, 197])
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
        check_table("window and num_heads", rows_of(self.window) + 3, num_heads)
        self.table = nn.Parameter(torch.empty(rows_of(self.window) + 3, num_heads))
        self.reset_parameters()
        place_parameters(self, device, dtype)

    def reset_parameters(self) -> None:
        """Set the table to zero: BEiT starts without a bias."""
        nn.init.zeros_(self.table)

    def head_axes(self) -> dict[str, HeadAxis]:
        return {"table": HeadAxis(1)}

    def of_offset(self, offset: Tensor) -> Tensor:
        return read(self.table, offset, self.window)

    def at_no_position(self) -> Tensor:
        return self.table[-3:].T

    def resized(self, window: Sequence[int], *, mode: Resize = "geometric") -> BEiTBias:
        """A new bias for a window of another size; the three rows of tokens without a place stay as they are.

        Args:
            window: tokens along each axis.
            mode: ``"geometric"``, the authors' places with timm's linear interpolation: near differences keep their
                numbers; ``"bilinear"``, as transformers; ``"bicubic"``.
        """
        new = BEiTBias(self.num_heads, window=window).to(self.table)
        with torch.no_grad():
            inside = resized_table(self.table[:-3], self.window, new.window, mode)
            new.table.copy_(torch.cat([inside, self.table[-3:]]))
        return new.train(self.training)

    def extra_repr(self) -> str:
        return f"{self.num_heads}, window={self.window}"


ENTRY = Entry(
    name="beit",
    encoding=BEiTBias,
    title="BEiT: Swin's table with numbers for the class token",
    formula="s_ij ← s_ij + table[p_i − p_j, h];  three rows for pairs with tokens without a place",
    source="Bao et al., arXiv 2106.08254, appendix; the authors' code",
    parameters="((2·height − 1) × (2·width − 1) + 3) × heads",
    cost="one lookup for every query and key; its gradient",
    past_training="differences outside the window use the table's edge; resized(window) interpolates the table",
    reads="distances",
    extension="the table resized by interpolation (resized)",
    used_in="BEiT (arXiv 2106.08254)",
    avoid="where every token has a position: it is then Swin's table",
    defaults=lambda shape: square_window(shape, 14),
)
