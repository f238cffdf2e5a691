"""Dropout whose mask is a function of indices: any backend, tile and pass computes it anew, and nobody stores it.

    u_bhij = hash(seed, b, h, i, j), uniform on 32 bits
    a_bhij ← a_bhij / (1 − p) where u_bhij ≥ p · 2^32, else 0

The seed is drawn from PyTorch's generator once a call: `torch.manual_seed` makes it repeatable, and a checkpoint that
restores the generator finds it again. The hash is a 32-bit mixer of rows and one of keys, joined and mixed again.
Source: the mixer is lowbias32 of Wellons, Prospecting for Hash Functions (public domain).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from posenc.arguments import shown

_FIRST, _SECOND = 0x7FEB352D, 0x846CA68B - (1 << 32)  # odd factors of lowbias32, as int32
_STEP = 0x9E3779B9 - (1 << 32)  # between neighbouring indices: 2^32 over the golden ratio


class Dropout(NamedTuple):
    """Which weights of a call are dropped."""

    p: float  # probability, in (0, 1]
    seed: Tensor | None = None  # int32 (2,), of the call; None: not drawn yet
    first: int = 0  # index of the first query, where these are some of a call's

    def with_seed(self, device: torch.device) -> Dropout:
        """With a seed from PyTorch's generator."""
        ends = torch.iinfo(torch.int32)
        return self._replace(seed=torch.randint(ends.min, ends.max, (2,), dtype=torch.int32, device=device))

    def after(self, start: int) -> Dropout:
        """The dropout of the queries from ``start`` on."""
        return self._replace(first=self.first + start)

    def on(self, weights: Tensor) -> Tensor:
        """The weights ``(batch, heads, queries, keys)`` of a call, dropped."""
        batch, heads, queries, keys = weights.shape
        index = torch.arange(keys, device=weights.device)
        all_rows = slice(0, batch), slice(0, heads), slice(0, queries)
        return weights * self.factors(*all_rows, index, weights.dtype)

    def factors(self, batch: slice, heads: slice, queries: slice, keys: Tensor, dtype: torch.dtype) -> Tensor:
        """0 or 1 / (1 − p) for each weight of a tile, ``(batch, heads, queries, columns)``.

        Args:
            batch, heads, queries: where the tile lies; with ``start`` and ``stop``.
            keys: indices of its keys, ``(columns,)`` or ``(queries, columns)``.
            dtype: of the result.
        """
        assert self.seed is not None, "the seed of a dropout must be drawn"
        shape = (batch.stop - batch.start, heads.stop - heads.start, queries.stop - queries.start, keys.shape[-1])
        if self.p == 1:
            return torch.zeros(shape, dtype=dtype, device=keys.device)
        bits = _mixed(_numbers(batch, keys) + self.seed[0])[:, None]
        bits = _mixed(bits ^ _numbers(heads, keys))[..., None]
        rows = slice(queries.start + self.first, queries.stop + self.first)
        bits = _mixed(bits ^ _numbers(rows, keys))[..., None]
        columns = _mixed(keys.to(torch.int32) * _STEP + self.seed[1])
        uniform = _mixed(bits ^ columns, last=False)
        least = min(round(self.p * 2**32), 2**32 - 1) - 2**31
        return (uniform >= least).to(dtype).mul_(1 / (1 - self.p))


def check_dropout(dropout: float) -> Dropout | None:
    """The dropout of a call, None for 0; a ValueError unless it is a probability."""
    if isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0 <= dropout <= 1:
        raise ValueError(f"dropout must be a probability, a number from 0 to 1, got {shown(dropout)}")
    return Dropout(float(dropout)) if dropout else None


def _numbers(of: slice, like: Tensor) -> Tensor:
    """Indices as int32 numbers far apart."""
    return torch.arange(of.start, of.stop, dtype=torch.int32, device=like.device) * _STEP


def _mixed(x: Tensor, *, last: bool = True) -> Tensor:
    """lowbias32 of new int32 numbers, in place; ``last``: with its last step, which moves low bits alone."""
    x.bitwise_xor_((x >> 16).bitwise_and_(0xFFFF)).mul_(_FIRST)
    x.bitwise_xor_((x >> 15).bitwise_and_(0x1FFFF)).mul_(_SECOND)
    return x.bitwise_xor_((x >> 16).bitwise_and_(0xFFFF)) if last else x
