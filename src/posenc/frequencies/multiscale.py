"""Multiscale RoPE: a base for each head, so that heads cover different ranges of distance.

    theta_hj = base_h^(−2j/d),   base_h = min_base · (max_base / min_base)^(h / (heads − 1))

One head has the geometric mean of both. Queries must be rotated as their key is, so under grouped keys there is one
base a key head, and its queries share it. Heads with large bases meet new angles later than those with small ones.

Source: the Nexus project (2024), multiscale_rope.py, no paper; rotation: Su et al., arXiv 2104.09864, section 3.2.
Checked against: that file's bases, frequencies and tables.
Departs from the source: its ``scaling_factor`` is a `PositionInterpolation` after this one; positions count, not
    indices; grouped keys have a rule.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from posenc.arguments import check_kv_heads
from posenc.constants import constant
from posenc.entry import Entry
from posenc.frequencies.host import check_base, geometric, is_geometric
from posenc.frequencies.spectrum import Scaling, Spectrum
from posenc.head_shares import HeadShare


class MultiScale(Scaling):
    """The frequencies of a base for each head; stands first in a list of scalings, as it makes its own.

    Args:
        num_heads: query heads.
        num_kv_heads: key heads, default ``num_heads``; must divide it.
        min_base, max_base: bases of the first and the last key head.

    >>> from posenc import RoPE
    >>> RoPE(64, scaling=MultiScale(8, num_kv_heads=2)).spectrum().theta.shape
    torch.Size([8, 32])
    """

    def __init__(
        self, num_heads: int, *, num_kv_heads: int | None = None, min_base: float = 1e3, max_base: float = 1e5
    ) -> None:
        super().__init__()
        num_kv_heads = check_kv_heads(num_heads, num_kv_heads)
        check_base(min_base, "min_base")
        check_base(max_base, "max_base")
        self.num_heads, self.num_kv_heads, self.min_base, self.max_base = num_heads, num_kv_heads, min_base, max_base
        low, high = math.log(min_base), math.log(max_base)
        if num_kv_heads == 1:
            self._bases = [math.exp((low + high) / 2)]
        else:
            self._bases = [math.exp(low + (high - low) * head / (num_kv_heads - 1)) for head in range(num_kv_heads)]
        self._rows: dict[int, tuple[tuple[float, ...], ...]] = {}

    def bases(self) -> list[float]:
        """The base of each key head."""
        return self._bases

    def _keep_heads(self, share: HeadShare) -> None:
        """Become the scaling of some heads; see `Encoding.heads`."""
        kept = share.key_heads(self.num_kv_heads)
        of_share = {"num_heads": share.stop - share.start, "num_kv_heads": kept.stop - kept.start}
        vars(self).update(of_share)  # options are set once; the rotation makes its tables anew
        self._bases, self._rows = self._bases[kept], {}

    def _rows_of(self, pairs: int) -> tuple[tuple[float, ...], ...]:
        """The frequencies of each query head; kept, because compilers cannot follow decimal arithmetic."""
        if pairs not in self._rows:
            group = self.num_heads // self.num_kv_heads
            self._rows[pairs] = tuple(tuple(geometric(2 * pairs, base)) for base in self.bases() for _ in range(group))
        return self._rows[pairs]

    def forward(self, spectrum: Spectrum) -> Spectrum:
        incoming, length = spectrum.theta, spectrum.length
        plain = incoming.ndim == 1 and (torch.compiler.is_compiling() or bool(incoming[0] == 1))
        if not (plain and is_geometric(incoming)):
            raise ValueError("MultiScale makes frequencies of its own: put it before all other scalings")
        theta = constant(self._rows_of(incoming.shape[0]), torch.float64, incoming.device)
        if isinstance(length, Tensor) and length.ndim:  # lengths of rows or tokens: heads stand before tokens
            return spectrum._replace(theta=theta.unsqueeze(1), length=length.unsqueeze(-3))
        return spectrum._replace(theta=theta)

    def extra_repr(self) -> str:
        grouped = "" if self.num_kv_heads == self.num_heads else f", num_kv_heads={self.num_kv_heads}"
        return f"{self.num_heads}{grouped}, min_base={self.min_base:g}, max_base={self.max_base:g}"


ENTRY = Entry(
    name="multiscale",
    scaling=MultiScale,
    title="Multiscale RoPE: one base per head",
    formula="theta_hj = base_h^(−2j/d),  base_h log-spaced from min_base to max_base",
    source="RoPE: Su et al., arXiv 2104.09864, section 3.2; the heads' bases: Nexus (2024), no paper",
    parameters="none",
    cost="a table per head",
    past_training="angles never seen in training; heads with small bases have fewer of them",
    reads="distances",
    extension="a scaling of the frequencies",
    used_in="none known to us",
    avoid="on a checkpoint trained with one base, or with a kernel that takes one table for all heads",
)
