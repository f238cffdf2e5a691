"""What a layer is given while it attends beside a cache: all tokens, narrowed to those that its queries can see."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from posenc.layers.cache.padded import within
from posenc.layers.cache.tracks import FEATURES, PADDING, POSITIONS, SEGMENTS, K, Kept, V, axis_of, length_of


class Source(Protocol):
    """What a draft reads of its cache, a `KVCache`."""

    version: int
    sinks: int
    seen: int
    next: int
    raw: int | None
    apart: int


class Draft(NamedTuple):
    """A cache with the tokens of one more call, which is none of its own before `KVCache.take`."""

    source: Source
    version: int
    whole: Kept  # all tokens, kept and new
    seen: Kept  # those that a query of this call may see
    past: int  # tokens kept before
    tokens: int  # new ones
    window: int | None  # tokens that a token sees
    left: int | None  # the window that is still to be applied among ``seen``
    visible: Tensor | None  # bool (rows, 1, queries, keys), where a window alone does not say it
    drops: bool  # whether tokens behind the window are forgotten
    in_place: bool
    flags: tuple[bool, int | None, bool]  # rotated, declared length, positions given

    @property
    def k(self) -> Tensor:
        """``(batch, num_kv_heads, keys, head_dim)``."""
        return _there(self.seen[K])

    @property
    def v(self) -> Tensor:
        """``(batch, num_kv_heads, keys, value_dim)``."""
        return _there(self.seen[V])

    @property
    def features(self) -> list[Tensor | None]:
        """One per encoding, ``(batch, heads, keys, ...)``."""
        return self.seen[FEATURES:]

    @property
    def positions(self) -> Tensor | None:
        """``(batch | 1, keys, ...)``; None: counted."""
        return self.seen[POSITIONS]

    @property
    def attention_mask(self) -> Tensor | None:
        """``(batch | 1, keys)``, True at real tokens; None: all are."""
        return self.seen[PADDING]

    @property
    def segments(self) -> Tensor | None:
        """``(batch | 1, keys)``."""
        return self.seen[SEGMENTS]

    @property
    def apart(self) -> int:
        """Sinks whose neighbours are gone."""
        return self.source.apart

    @property
    def from_zero(self) -> bool:
        """Whether counted positions of the keys are 0, 1, 2, …, as `attention` has them by default."""
        return self.source.next + self.tokens == length_of(self.seen)

    @property
    def contiguous(self) -> bool:
        """Whether counted positions of the keys have no gap."""
        return not self.source.apart or self.from_zero

    def counted(self) -> Tensor:
        """Positions of the keys where they count, ``(keys,)``."""
        keys, device = length_of(self.seen), self.k.device
        end = self.source.next + self.tokens
        if not self.apart:
            return torch.arange(end - keys, end, device=device)
        index = torch.arange(keys, device=device)
        return torch.where(index < self.apart, index, index + (end - keys))

    def columns(self, mask: Tensor) -> Tensor:
        """A caller's mask over the keys kept, or over all tokens that ever came, for those that are looked at."""
        kept, ever, keys = length_of(self.whole), self.source.seen + self.tokens, length_of(self.seen)
        if mask.shape[-1] == ever != kept:
            if self.source.raw is not None:
                raise ValueError("mask must be over the keys that are kept: rows were put together without padding")
            parts = (mask[..., : self.apart], mask[..., ever - kept + self.apart :])
            mask = torch.cat(parts, -1) if self.apart else parts[1]
        return mask[..., kept - keys :] if mask.shape[-1] == kept else mask


def draft(
    source: Source,
    whole: Kept,
    past: int,
    tokens: int,
    *,
    window: int | None,
    drops: bool,
    in_place: bool,
    flags: tuple[bool, int | None, bool],
) -> Draft:
    """Narrow all tokens to those that a query of the call may see, and say what is still to be hidden of them."""
    keys, sinks = past + tokens, source.sinks
    first, left, visible, attention_mask = 0, window, None, whole[PADDING]
    if window is None or (keys <= window and source.seen == past):
        left = None
    elif attention_mask is not None and drops:
        left, visible = None, within(attention_mask, tokens, window, sinks)
    elif drops and not sinks:
        first = max(0, keys - (window - 1 + tokens))
        left = None if tokens == 1 or keys <= window else window
    elif sinks:
        left = None
        if tokens > 1 or keys - sinks > window:
            visible = _beside_sinks(source, keys, tokens, window, _there(whole[K]).device)
    seen = whole if first == 0 else [
        None if t is None else t.narrow(axis_of(i), first, keys - first) for i, t in enumerate(whole)
    ]  # fmt: skip
    return Draft(
        source, source.version, whole, seen, past, tokens, window, left, visible, drops, in_place, flags
    )  # fmt: skip


def _beside_sinks(source: Source, keys: int, tokens: int, window: int, device: torch.device) -> Tensor:
    """Keys among the first tokens or in the window, ``(1, 1, queries, keys)``, by their number in the text."""
    end = source.seen + tokens
    index = torch.arange(keys, device=device)
    number = torch.where(index < source.apart, index, index + (end - keys))
    own = torch.arange(end - tokens, end, device=device)[:, None]
    return ((number < source.sinks) | ((own - number).abs() < window))[None, None]


def _there(x: Tensor | None) -> Tensor:
    if x is None:
        raise RuntimeError("a draft without keys")
    return x
