"""V-JEPA's RoPE: frame, row and column each rotate a third of the channels; left-over channels are not rotated.

    n = head_dim // 3 // 2,  theta_i = 10000^(−i / n),  i = 0 … n − 1
    fixed:     (a_i, b_i) ← R(p · theta_i) (a_i, b_i)                        pairs (2i, 2i + 1) of an axis
    released:  a_i ← a_i cos(p theta_2i) − b_i sin(p theta_2i),  b_i ← b_i cos(p theta_2i+1) + a_i sin(p theta_2i+1)

theta's index counts modulo n in the released form. A released "pair" rotates its two channels by different angles: that
is no rotation. Norms change by up to a fifth, and scores depend on where tokens are, not on their distance alone.
Source: Assran et al., V-JEPA 2, arXiv 2506.09985, section 2.1 (3D-RoPE); facebookresearch/vjepa2 at c2963a4.
Checked against: that code's `rotate_queries_or_keys`, as released and with the lines that its comment gives as the fix.
Departs from the source: the default is the fixed form; weights of the authors' releases need ``released=True``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from posenc.arguments import check_flag
from posenc.encoding import RotaryEncoding, Table
from posenc.entry import Entry
from posenc.frequencies.host import geometric
from posenc.frequencies.phase import Frequencies
from posenc.rotary._axes import check_head, coordinates, over_heads, table_by_axis
from posenc.rotary._conventions import CONVENTIONS, pairs_of_axis
from posenc.rotary._rotate import rotate_pairs

_NAME = "v-jepa-2"


class VJEPARoPE(RotaryEncoding):
    """Three-axis rotary embedding of V-JEPA 2; positions are (frame, row, column).

    Args:
        head_dim: width of a head, even and at least 6; 2 · (head_dim // 3 // 2) channels an axis are rotated.
        released: True for the form that the authors shipped and trained with, which is no rotation; False, the
            same as ``AxialRoPE(head_dim, axes=3, convention="v-jepa-2")``, for models of your own.

    Raises:
        ValueError: for a ``head_dim`` that does not fit.

    >>> from posenc.positions import grid
    >>> rope, positions = VJEPARoPE(64), grid(2, 3, 3)
    >>> q, k = torch.randn(2, 1, 8, 18, 64)
    >>> rope(q, k, positions, positions)[0].shape
    torch.Size([1, 8, 18, 64])
    """

    axes = 3

    def __init__(
        self,
        head_dim: int,
        *,
        released: bool = False,
    ) -> None:
        super().__init__()
        self._pairs = pairs_of_axis(head_dim, self.axes, _NAME)
        self.head_dim, self.released = head_dim, check_flag("released", released)
        self._frequencies = Frequencies(geometric(2 * self._pairs, CONVENTIONS[_NAME].base))

    def table(self, positions: Tensor, length: int | Tensor | None = None, *, like: Tensor | None = None) -> Table:
        """cos and sin ``(*batch, tokens, pairs)``; ``(*batch, tokens, head_dim)`` in the released form."""
        places, _, dtype = coordinates(positions, self.axes, like)
        cos, sin = table_by_axis(places, self._frequencies, dtype)
        if not self.released:
            return cos, sin
        cos, sin = self._tiled(cos), self._tiled(sin)
        rest = self.head_dim - cos.shape[-1]
        signed = torch.stack([-sin[..., ::2], sin[..., 1::2]], -1).flatten(-2)
        return nn.functional.pad(cos, (0, rest), value=1.0), nn.functional.pad(signed, (0, rest))

    def _tiled(self, waves: Tensor) -> Tensor:
        """Each axis' waves twice, one after the other: theta_0, …, theta_(n−1), theta_0, …, theta_(n−1)."""
        of_axes: Tensor = waves.unflatten(-1, (self.axes, self._pairs))  # type: ignore[no-untyped-call]
        return torch.cat([of_axes, of_axes], -1).flatten(-2)

    def rotate(self, x: Tensor, table: Table) -> Tensor:
        """Rotate queries or keys ``(batch, heads, tokens, head_dim)``; result in the dtype of ``x``."""
        check_head("VJEPARoPE", self.head_dim, x)
        cos, sin = over_heads(table)
        if not self.released:
            return rotate_pairs(x, cos, sin, "interleaved")
        wide = x.to(cos.dtype)
        neighbours = wide.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)  # type: ignore[no-untyped-call]
        return torch.addcmul(wide * cos, neighbours, sin).to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.head_dim}, released={self.released}"


ENTRY = Entry(
    name="vjepa",
    encoding=VJEPARoPE,
    title="V-JEPA's RoPE: frame, row and column each rotate a third of the channels",
    formula="q, k ← R(p) q, R(p) k,  pairs rotated by p_axis·theta_i,  theta_i = 10000^(−i/n), n = head_dim//6",
    source="Assran et al., arXiv 2506.09985, section 2.1",
    parameters="none",
    cost="one rotation of q and k per layer",
    past_training="angles never seen in training on every axis that is longer",
    reads="distances",
    extension="coordinates rescaled to the training range",
    used_in="V-JEPA 2 (arXiv 2506.09985)",
    avoid="in a new model, with released=True: the released code is not a rotation; axial RoPE is what it intends",
)
