"""The keys and values that a layer's call attends to: from its own input and from its cache, in one view.

`NewTokens` holds what the call projected from its input. `visible_keys` joins it with whatever cache there is (none, a
growing `KVCache`, a `StaticKVCache`) and returns `VisibleKeys`: keys, values, and the positions and masks to hand to
`attention`. The cache keeps the new tokens only when `VisibleKeys.commit` is called, after attention has succeeded.

Default positions and windows by index are what `attention` computes fastest. They are exact wherever indices tell the
distances between tokens: padding at the ends of rows, and forgotten tokens at their start, move a row as a whole, which
an encoding by distance does not notice. Padding between real tokens, sinks whose neighbours are gone, and encodings
that read absolute positions need the positions themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from posenc.encoding import BiasEncoding, Encoding, ScoreEncoding, WeightEncoding
from posenc.layers.cache import KVCache, StaticKVCache
from posenc.layers.cache.padding import has_gaps, within
from posenc.layers.cache.pending import PendingKeys
from posenc.layers.cache.static import PendingSlots
from posenc.tracing import exporting, tracing
from posenc.validate import Causal


class NewTokens(NamedTuple):
    """Keys and values projected from this call's input."""

    k: Tensor  # (batch, num_kv_heads, tokens, head_dim)
    v: Tensor  # (batch, num_kv_heads, tokens, value_dim)
    token_states: list[Tensor | None]  # what encodings keep of the tokens, one per encoding
    positions: Tensor | None  # None: no encoding reads any
    positions_from_caller: bool
    per_row_positions: bool  # whether padding or documents give each row positions of its own
    attention_mask: Tensor | None  # (batch, tokens), True at real tokens
    segments: Tensor | None
    mask: Tensor | None  # the caller's, over the cache's keys and these
    window: int | None
    length: int | None  # declared for length-dependent rotations
    rotated: bool  # whether k is
    axes: int  # coordinates of a position


class VisibleKeys(NamedTuple):
    """Cached and new keys that this call's queries may attend to."""

    k: Tensor  # (batch, num_kv_heads, keys, head_dim)
    v: Tensor  # (batch, num_kv_heads, keys, value_dim)
    token_states: list[Tensor | None]  # one per encoding
    segments: Tensor | None
    caller_mask: Tensor | None  # over these keys
    q_pos: Tensor | None  # None: no encoding reads positions
    k_pos: Tensor | None  # None: positions count, see `PendingKeys.counted_positions`
    positions_from_caller: bool
    padding: Tensor | None  # (batch | 1, keys), True at real tokens
    visible: Tensor | None  # (batch | 1, 1, queries | 1, keys), where a window by index does not say it
    window: int | None  # what is still to be applied of the window, by index
    cache: KVCache | StaticKVCache | None = None
    pending: PendingKeys | PendingSlots | None = None  # what the cache will keep

    def commit(self, last: tuple[Tensor, ...]) -> None:
        """Let the cache keep the new tokens; ``last`` is what the layer needs of each row's newest one."""
        if isinstance(self.cache, KVCache) and isinstance(self.pending, PendingKeys):
            self.cache.take(self.pending, last)
        elif isinstance(self.cache, StaticKVCache) and isinstance(self.pending, PendingSlots):
            self.cache.take(self.pending)

    def positions(self, encodings: Sequence[Encoding], causal: Causal) -> tuple[Tensor | None, Tensor | None]:
        """Positions of queries and keys for the encodings that `attention` applies; None for both: its default."""
        by_position = causal == "positions"
        if self.q_pos is None or not (encodings or by_position):
            return None, None
        readers = [e for e in encodings if e.axes]
        if not (readers or by_position):
            return None, None
        growing = self.pending if isinstance(self.pending, PendingKeys) else None
        if self.k_pos is None and (growing is None or growing.from_zero):
            return None, None
        by_distance = not by_position and not self.positions_from_caller and all(map(_reads_distance_only, readers))
        if by_distance and self._indices_tell_distances(growing):
            return None, None
        if self.k_pos is None and growing is not None:
            return self.q_pos, growing.counted_positions()
        return self.q_pos, self.k_pos

    def mask(self, caller_mask: Tensor | None) -> Tensor | None:
        """A caller's mask (checked), padding and the window in one, as `attention` takes it."""
        by_key = None if self.padding is None else self.padding[:, None, None, :]
        combined: Tensor | None = None
        for part in (caller_mask, by_key, self.visible):
            if part is not None:
                combined = part if combined is None else combined & part
        return combined

    def _indices_tell_distances(self, growing: PendingKeys | None) -> bool:
        if growing is not None and not growing.contiguous:
            return False
        if self.padding is None:
            return True
        if tracing():  # values are not known while tracing
            return False
        return not has_gaps(self.padding)


def visible_keys(
    new: NewTokens,
    cache: KVCache | StaticKVCache | None,
    encodings: Sequence[Encoding],
    causal: Causal,
    *,
    learns: bool,
) -> VisibleKeys:
    """All keys that a call attends to; the cache stays as it is until `VisibleKeys.commit`.

    Args:
        new: what the call projected from its input.
        cache: None: there are no other tokens.
        encodings: the layer's encodings inside attention.
        causal: as in `attention`.
        learns: whether a backward pass may follow.
    """
    if cache is None:
        return _without_cache(new)
    if isinstance(cache, StaticKVCache):
        _check_static(new, cache, learns)
        in_order = new.k.shape[2] > 1 or any(isinstance(e, ScoreEncoding | WeightEncoding) for e in encodings)
        slots = cache.extended(
            new.k, new.v, new.token_states,
            positions=new.positions, attention_mask=new.attention_mask, in_order=in_order,
        )  # fmt: skip
        k_pos = None if new.positions is None else slots.positions
        return VisibleKeys(
            slots.k, slots.v, slots.token_states, None, None, new.positions, k_pos, True, None, slots.visible,
            slots.remaining_window, cache, slots,
        )  # fmt: skip
    narrows = new.window is not None or cache.window is not None
    from_caller = new.positions_from_caller or cache.positions_from_caller
    pending = cache.extended(
        new.k, new.v, new.token_states,
        positions=new.positions if new.per_row_positions or new.positions_from_caller else None,
        derived=new.per_row_positions, attention_mask=new.attention_mask, segments=new.segments, rotated=new.rotated,
        length=new.length, axes=new.axes, window=new.window,
        droppable=narrows and window_bounds(encodings, causal, from_caller),
        in_place=not learns,
    )  # fmt: skip
    mask = pending.columns(new.mask) if isinstance(new.mask, Tensor) else new.mask  # anything else is refused later
    return VisibleKeys(
        pending.k, pending.v, pending.token_states, pending.segments, mask, new.positions, pending.positions,
        pending.positions_from_caller, pending.attention_mask, pending.visible, pending.remaining_window, cache,
        pending,
    )  # fmt: skip


def _without_cache(new: NewTokens) -> VisibleKeys:
    positions, padding, window = new.positions, new.attention_mask, new.window
    visible = None
    if window is not None and padding is not None and window < new.k.shape[2] and (tracing() or has_gaps(padding)):
        visible, window = within(padding, new.k.shape[2], window), None
    explicit = new.positions_from_caller or (positions is not None and positions.ndim == 2)
    return VisibleKeys(
        new.k, new.v, new.token_states, new.segments, new.mask, positions,
        positions if explicit else None, new.positions_from_caller, padding, visible, window,
    )  # fmt: skip


def _check_static(new: NewTokens, cache: StaticKVCache, learns: bool) -> None:
    """Raise a ValueError for what a cache of fixed size does not support."""
    for name, value in (("mask", new.mask), ("segments", new.segments)):
        if value is not None:
            raise ValueError(f"{name} cannot serve with a static cache: pass attention_mask, or use a KVCache")
    if new.window is not None and new.window != cache.window:
        raise ValueError(f"window must be the static cache's {cache.window}, got {new.window}")
    if (new.rotated, new.length) != (cache.rotated, cache.length):
        raise ValueError(
            f"length must be {cache.length}, for which the static cache was made, and tables must be those that it "
            f"leaves the layer to make; got length {new.length}"
        )
    if learns and not exporting():
        raise ValueError("cache: no gradient flows through a static cache: use torch.no_grad(), or a KVCache")


def may_learn(modules: Iterable[nn.Module], x: Tensor) -> bool:
    """Whether a backward pass may follow a call; encodings that a layer borrows are not among its own modules."""
    return x.requires_grad or any(p.requires_grad for module in modules for p in module.parameters())


def window_bounds(encodings: Sequence[Encoding], causal: Causal, positions_from_caller: bool) -> bool:
    """Whether tokens behind a window of indices have no effect on any later call, so that a cache may drop them.

    They count for PaTH, which looks beyond its window for the neighbours of keys, and where a caller's positions rather
    than indices decide which keys are visible.
    """
    if causal == "positions" and positions_from_caller:
        return False
    modules = [module for encoding in encodings for module in encoding.modules()]
    return all(module.scope.by_rows for module in modules if isinstance(module, ScoreEncoding))


def _reads_distance_only(encoding: Encoding) -> bool:
    """Whether an encoding reads nothing of positions but their distance."""
    if not isinstance(encoding, BiasEncoding):
        return False
    device = next((p.device for p in encoding.parameters()), torch.device("cpu"))
    return encoding.of_distance(torch.zeros(1, dtype=torch.int64, device=device)) is not None
