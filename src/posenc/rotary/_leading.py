"""A rotation of the first channels of each head; the remaining channels of queries and keys pass through."""

from __future__ import annotations

import torch
from torch import Tensor

from posenc.encoding import RotaryEncoding, Table


class Leading(RotaryEncoding):
    """Any rotation, of the first ``width`` channels. Queries and keys may be of different widths behind them.

    Args:
        inner: a rotation of heads of ``width`` channels.
        width: channels that it rotates.
    """

    def __init__(self, inner: RotaryEncoding, width: int) -> None:
        super().__init__()
        self.inner: RotaryEncoding = inner
        self.width = width
        self.axes, self.causal_only = inner.axes, inner.causal_only
        self.length_dependent = inner.length_dependent

    def forward(
        self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, length: int | tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        span = (length,) if self.length_dependent else ()
        rotated = self.inner(q[..., : self.width], k[..., : self.width], q_pos, k_pos, *span)
        joined = (torch.cat([t, x[..., self.width :]], -1) for t, x in zip(rotated, (q, k), strict=True))
        return next(joined), next(joined)

    def cacheable(self, length: int | None = None) -> bool:
        return self.inner.cacheable(length)

    def table(self, positions: Tensor, length: int | Tensor | None = None, *, like: Tensor | None = None) -> Table:
        return self.inner.table(positions, length, like=like)

    def rotate(self, x: Tensor, table: Table) -> Tensor:
        return torch.cat([self.inner.rotate(x[..., : self.width], table), x[..., self.width :]], -1)

    def rotate_queries(self, x: Tensor, table: Table) -> Tensor:
        return torch.cat([self.inner.rotate_queries(x[..., : self.width], table), x[..., self.width :]], -1)
