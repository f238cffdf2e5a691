"""Which keys each query attends to: causal order, window, mask and documents of packed rows, for some queries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from posenc.structure import TokenOrder
from posenc.tracing import tracing

Causal = bool | Literal["positions"]
BLOCK = 512  # queries whose visible keys are written out at a time


class VisibilityMask(NamedTuple):
    """Everything that hides keys from queries, without a matrix."""

    causal: Causal
    window: int | None  # a query attends to keys less than this many tokens away
    mask: Tensor | None  # (batch | 1, heads | 1, queries | 1, keys) bool
    segments: tuple[Tensor, Tensor] | None  # of queries (batch | 1, queries) and keys (batch | 1, keys)
    q_pos: Tensor  # (*batch, queries); read where the order is that of positions
    k_pos: Tensor  # (*batch, keys)
    narrowed: tuple[Callable[[Tensor, Tensor], Tensor], ...] = ()  # of these positions, the pairs that are left

    @property
    def order_only(self) -> bool:
        """Whether the order of the indices, with or without a window, is all there is."""
        return self.mask is None and self.segments is None and self.causal != "positions" and not self.narrowed

    @property
    def per_key(self) -> bool:
        """Whether, apart from the order of the indices, each key is hidden from all queries or from none."""
        by_key = (self.mask is None or self.mask.shape[2] == 1) and self.segments is None and not self.narrowed
        return by_key and self.causal != "positions"

    def rows(self, start: int, stop: int, queries: int, keys: int, first: int = 0, last: int | None = None) -> Tensor:
        """Which of the keys ``first … last − 1`` queries ``start … stop − 1`` may attend to.

        Returns:
            ``(batch | 1, heads | 1, rows, keys)`` bool.
        """
        last = keys if last is None else last
        own_key = torch.arange(start, stop, device=self.q_pos.device)[:, None] + (keys - queries)
        index = torch.arange(first, last, device=self.q_pos.device)
        together = (index <= own_key if self.causal is True else torch.ones_like(index <= own_key))[None, None]
        if self.causal == "positions":
            q_pos, k_pos = self.q_pos[..., start:stop].unsqueeze(-1), self.k_pos[..., first:last].unsqueeze(-2)
            allowed = k_pos <= q_pos
            if self.window is not None:
                allowed = allowed & (q_pos - k_pos < self.window)
            together = allowed.unsqueeze(-3) if allowed.ndim == 3 else allowed[None, None]
        elif self.window is not None:
            together = together & ((own_key - index).abs() < self.window)
        if self.segments is not None:
            q_segments, k_segments = self.segments
            together = together & (q_segments[:, start:stop, None] == k_segments[:, None, first:last]).unsqueeze(1)
        if self.mask is not None:
            rows = self.mask if self.mask.shape[2] == 1 else self.mask[:, :, start:stop]
            together = together & rows[..., first:last]
        for left in self.narrowed:
            pairs = left(self.q_pos[..., start:stop], self.k_pos[..., first:last])
            together = together & (pairs.unsqueeze(-3) if pairs.ndim == 3 else pairs)
        return together

    def in_order(self, queries: int, keys: int) -> bool:
        """Whether positions never fall from one key to the next among those that a query attends to; reads values."""
        if bool((self.k_pos[..., 1:] >= self.k_pos[..., :-1]).all()):  # all there is to ask, nearly always
            return True
        index = torch.arange(keys, device=self.k_pos.device)
        k_pos = self.k_pos if self.k_pos.ndim == 2 else self.k_pos[None]
        for start in range(0, queries, BLOCK):
            seen = self.rows(start, min(start + BLOCK, queries), queries, keys)
            newest = torch.where(seen, index, -1).cummax(-1).values
            before = F.pad(newest[..., :-1], (1, 0), value=-1)  # the visible key before each
            at = k_pos[:, None, None].expand(*before.shape[:1], *before.shape[1:3], -1)
            falls = at < at.gather(-1, before.clamp(min=0))
            if bool((falls & seen & (before >= 0)).any()):
                return False
        return True

    def token_order(self, queries: int, keys: int) -> TokenOrder:
        """Which tokens any query attends to, and which precedes each in its sequence; a window hides none of them.

        The predecessor is the newest earlier key that the key's own query attends to. Keys of earlier calls have no
        query here: for them it is the newest earlier key that any query attends to, as only one sequence continues
        from call to call.
        """
        index = torch.arange(keys, device=self.q_pos.device)
        visibility = self._replace(window=None)
        if visibility.order_only:
            return TokenOrder(None, (index - 1)[None])
        compiling = tracing()
        used, newest = None, []
        # Blocks of queries, so that no matrix of queries and keys exists; a compiler would unroll the loop.
        for start in (0,) if compiling else range(0, queries, BLOCK):
            stop = queries if compiling else min(start + BLOCK, queries)
            seen = visibility.rows(start, stop, queries, keys).any(1)
            used = seen.any(1) if used is None else used | seen.any(1)
            own_key = torch.arange(start, stop, device=index.device)[:, None] + (keys - queries)
            newest.append(torch.where(seen & (index < own_key), index, -1).amax(-1))
        assert used is not None, "a call has queries"
        # Keys before the first query's own token came in earlier calls: their queries, and so their masks, are gone.
        previous_old = F.pad(torch.where(used, index, -1).cummax(-1).values, (1, 0), value=-1)[:, :-1]
        first = keys - queries  # the first query's own token
        previous_new = torch.cat(newest, -1)[:, (index - first).clamp(min=0)]
        return TokenOrder(used, torch.where(index >= first, previous_new, previous_old))

    def key_counts(self, queries: int, keys: int) -> Tensor:
        """How many keys each query attends to, ``(batch | 1, heads | 1, queries)`` int64."""
        if self.order_only:
            own_key = torch.arange(keys - queries, keys, device=self.q_pos.device)
            first, last = torch.zeros_like(own_key), torch.full_like(own_key, keys)
            if self.causal is True:
                last = own_key + 1
            if self.window is not None:
                first, last = (own_key - self.window + 1).clamp(min=0), torch.minimum(last, own_key + self.window)
            return (last - first).clamp(min=0)[None, None]
        if tracing() or queries <= BLOCK:
            return self.rows(0, queries, queries, keys).sum(-1)  # a compiler would unroll the loop for each length
        starts = range(0, queries, BLOCK)
        return torch.cat([self.rows(s, min(s + BLOCK, queries), queries, keys).sum(-1) for s in starts], -1)
