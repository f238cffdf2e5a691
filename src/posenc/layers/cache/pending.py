"""`PendingKeys`: a growing cache's tokens and the tokens of one more call, before the cache keeps them.

A layer attends to pending keys first and commits them with `KVCache.take` afterwards, so a call that raises changes
nothing. Under a window they are narrowed to the keys that some query of the call attends to.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from posenc.layers.cache.padding import within
from posenc.layers.cache.token_buffers import (
    PADDING,
    POSITIONS,
    SEGMENTS,
    TOKEN_STATES,
    K,
    TokenData,
    V,
    num_tokens,
    token_axis,
)


class GrowingCache(Protocol):
    """What pending keys read of their cache, a `KVCache`."""

    version: int
    sinks: int
    seen: int
    next: int
    uncompacted: int | None
    detached_sinks: int


class PendingKeys(NamedTuple):
    """Cached keys and values with one more call's; the cache holds only the cached ones until `KVCache.take`."""

    cache: GrowingCache
    version: int  # of the cache: pending keys of an older version are refused
    all_tokens: TokenData  # cached and new
    visible_tokens: TokenData  # those that some query of this call may attend to
    past: int  # cached tokens
    tokens: int  # new tokens
    window: int | None  # tokens that a token attends to
    remaining_window: int | None  # the window that is still to be applied among ``visible_tokens``
    visible: Tensor | None  # bool (rows, 1, queries, keys), where a window by index does not say it
    drops: bool  # whether tokens behind the window are forgotten
    in_place: bool
    rotated: bool  # whether k is
    length: int | None  # declared for its rotation
    positions_from_caller: bool

    @property
    def k(self) -> Tensor:
        """``(batch, num_kv_heads, keys, head_dim)``."""
        return _not_none(self.visible_tokens[K])

    @property
    def v(self) -> Tensor:
        """``(batch, num_kv_heads, keys, value_dim)``."""
        return _not_none(self.visible_tokens[V])

    @property
    def token_states(self) -> list[Tensor | None]:
        """One per encoding, ``(batch, heads, keys, ...)``."""
        return self.visible_tokens[TOKEN_STATES:]

    @property
    def positions(self) -> Tensor | None:
        """``(batch | 1, keys, ...)``; None: counted."""
        return self.visible_tokens[POSITIONS]

    @property
    def attention_mask(self) -> Tensor | None:
        """``(batch | 1, keys)``, True at real tokens; None: all are."""
        return self.visible_tokens[PADDING]

    @property
    def segments(self) -> Tensor | None:
        """``(batch | 1, keys)``."""
        return self.visible_tokens[SEGMENTS]

    @property
    def from_zero(self) -> bool:
        """Whether counted positions of the keys are 0, 1, 2, …, as `attention` has them by default."""
        return self.cache.next + self.tokens == num_tokens(self.visible_tokens)

    @property
    def contiguous(self) -> bool:
        """Whether counted positions of the keys have no gap."""
        return not self.cache.detached_sinks or self.from_zero

    def counted_positions(self) -> Tensor:
        """Positions of the keys where they count, ``(keys,)``."""
        return count_with_gap(
            self.cache.next + self.tokens, num_tokens(self.visible_tokens), self.cache.detached_sinks, self.k.device
        )

    def columns(self, mask: Tensor) -> Tensor:
        """The columns of a caller's mask that belong to the visible keys.

        Args:
            mask: over the keys kept, or over all tokens that ever came.
        """
        held, keys = num_tokens(self.all_tokens), num_tokens(self.visible_tokens)
        ever, sinks = self.cache.seen + self.tokens, self.cache.detached_sinks
        if mask.shape[-1] == ever != held:
            if self.cache.uncompacted is not None:
                raise ValueError("mask must be over the keys that are kept: rows were put together without padding")
            parts = (mask[..., :sinks], mask[..., ever - held + sinks :])
            mask = torch.cat(parts, -1) if sinks else parts[1]
        return mask[..., held - keys :] if mask.shape[-1] == held else mask


def pending_keys(
    cache: GrowingCache,
    all_tokens: TokenData,
    past: int,
    tokens: int,
    *,
    window: int | None,
    drops: bool,
    in_place: bool,
    rotated: bool,
    length: int | None,
    positions_from_caller: bool,
) -> PendingKeys:
    """Narrow all tokens to those that a query of the call may attend to, and say which of them are still hidden."""
    keys, sinks = past + tokens, cache.sinks
    first, remaining, visible, attention_mask = 0, window, None, all_tokens[PADDING]
    if window is None or (keys <= window and cache.seen == past):
        remaining = None
    elif attention_mask is not None and drops:
        remaining, visible = None, within(attention_mask, tokens, window, sinks)
    elif drops and not sinks:
        first = max(0, keys - (window - 1 + tokens))
        remaining = None if tokens == 1 or keys <= window else window
    elif sinks:
        remaining = None
        if tokens > 1 or keys - sinks > window:
            visible = _sinks_and_window(cache, keys, tokens, window, _not_none(all_tokens[K]).device)
    visible_tokens = all_tokens if first == 0 else [
        None if t is None else t.narrow(token_axis(i), first, keys - first) for i, t in enumerate(all_tokens)
    ]  # fmt: skip
    return PendingKeys(
        cache, cache.version, all_tokens, visible_tokens, past, tokens, window, remaining, visible, drops, in_place,
        rotated, length, positions_from_caller,
    )  # fmt: skip


def count_with_gap(end: int, keys: int, sinks: int, device: torch.device) -> Tensor:
    """The numbers up to ``end`` (exclusive) of ``keys`` tokens, ``(keys,)``; the first ``sinks`` count from 0."""
    if not sinks:
        return torch.arange(end - keys, end, device=device)
    index = torch.arange(keys, device=device)
    return torch.where(index < sinks, index, index + (end - keys))


def _sinks_and_window(cache: GrowingCache, keys: int, tokens: int, window: int, device: torch.device) -> Tensor:
    """Keys among the first tokens or in the window, ``(1, 1, queries, keys)``, by their number in the sequence."""
    end = cache.seen + tokens
    index = torch.arange(keys, device=device)
    number = torch.where(index < cache.detached_sinks, index, index + (end - keys))
    own_number = torch.arange(end - tokens, end, device=device)[:, None]
    return ((number < cache.sinks) | ((own_number - number).abs() < window))[None, None]


def _not_none(x: Tensor | None) -> Tensor:
    if x is None:
        raise RuntimeError("pending keys without keys")
    return x
