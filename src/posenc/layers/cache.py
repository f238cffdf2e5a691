"""What one attention layer keeps between decoding steps: keys, values, positions, and what encodings remember."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class KVCache:
    """Keys and values of the tokens seen so far, for one layer.

    Keys are kept rotated, unless their rotation depends on more than their position (dynamic NTK, xPos): those
    turn anew in every call. Beside them lies whatever each encoding's ``remember`` gave (FoX: log gates), which
    nothing else could rebuild. A new cache is empty; `SelfAttention` fills it.

    >>> len(KVCache())
    0
    """

    def __init__(self) -> None:
        self.k: Tensor | None = None  # (batch, kv_heads, tokens, head_dim)
        self.rotated = True  # whether k is
        self.length: int | None = None  # the length that was declared for their rotation
        self.v: Tensor | None = None  # (batch, kv_heads, tokens, head_dim)
        self.features: list[Tensor | None] = []  # one per encoding, (batch, heads, tokens, ...)
        self.positions: Tensor | None = None  # (batch | 1, tokens, ...); None = counted from 0
        self.padding: Tensor | None = None  # (batch | 1, tokens) bool, True at real tokens; None = all are
        self.segments: Tensor | None = None  # (batch | 1, tokens)
        self.last: tuple[Tensor, ...] = ()  # what the layer itself needs of each row's newest token (FoXPro)

    def __len__(self) -> int:
        """Tokens kept, padding included."""
        return 0 if self.k is None else self.k.shape[2]

    def extended(
        self,
        k: Tensor,
        v: Tensor,
        features: Sequence[Tensor | None],
        *,
        positions: Tensor | None = None,
        padding: Tensor | None = None,
        segments: Tensor | None = None,
        rotated: bool = True,
        length: int | None = None,
        axes: int = 1,
    ) -> tuple[KVCache, Tensor, Tensor]:
        """A cache with the tokens of one more call, and all keys and values; this one stays as it is (see `take`)."""
        past, tokens = len(self), k.shape[2]
        if self.positions is not None and positions is None:
            raise ValueError("positions must be given, as they were in an earlier call that shares this cache")
        if axes > 1 and (positions is None or (past and self.positions is None)):
            raise ValueError(f"positions must be given in every call that shares this cache: they have {axes} axes")
        if past and (self.segments is None) != (segments is None):
            raise ValueError("segments must be given in every call that shares a cache, or in none")
        if past and (self.rotated, self.length) != (rotated, length):
            raise ValueError(
                f"length must be the same in all calls that share a cache: {self.length} before, now {length}"
            )
        if self.k is not None and self.k.shape[0] != k.shape[0]:
            raise ValueError(f"batch must be {self.k.shape[0]} as in the calls before, got {k.shape[0]}")
        counted = torch.arange(past + tokens, device=k.device)
        grown = KVCache()
        grown.rotated, grown.length = rotated, length
        all_k = grown.k = k if self.k is None else torch.cat([self.k, k], 2)
        all_v = grown.v = v if self.v is None else torch.cat([self.v, v], 2)
        old = self.features or [None] * len(features)
        grown.features = [_end_to_end(a, b) for a, b in zip(old, features, strict=True)]
        grown.positions = _extend(self.positions, positions, counted, past, axes)
        grown.padding = _extend(self.padding, padding, torch.ones_like(counted, dtype=torch.bool), past)
        grown.segments = _extend(self.segments, segments, counted, past)
        return grown, all_k, all_v

    def take(self, other: KVCache) -> None:
        """Become what ``other`` is."""
        vars(self).update(vars(other))


def _end_to_end(old: Tensor | None, new: Tensor | None) -> Tensor | None:
    return new if old is None or new is None else torch.cat([old, new], 2)


def _extend(old: Tensor | None, new: Tensor | None, default: Tensor, past: int, axes: int = 1) -> Tensor | None:
    """``old`` (rows, past) and ``new`` (tokens,) or (rows, tokens) end to end; the default where one was not given."""
    if old is None and new is None:
        return None
    parts = [default[None, :past] if old is None else old, default[past:] if new is None else new][0 if past else 1 :]
    parts = [part[None] if part.ndim == (1 if axes == 1 else 2) else part for part in parts]
    rows = max(part.shape[0] for part in parts)
    return torch.cat([part.expand(rows, *part.shape[1:]) for part in parts], 1)
