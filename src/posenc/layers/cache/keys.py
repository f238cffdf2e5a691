"""The keys that one call of a layer attends to, and what a cache will keep of the call.

`NewTokens` holds what the call projected from its input. `without_cache`, or a cache's ``_extended``, answers with
`Keys`: cached and new keys and values, narrowed under a window to those that some query of the call attends to, with
what is still to be hidden among them. The layer attends to them and only then lets the cache keep ``keys.step`` by its
``_take``, so that a call that raises changes nothing.

Default positions and windows by index are what `attention` computes fastest, and `positions_for` gives them wherever
they are exact: where indices tell the distances between tokens. Padding at the ends of rows, and forgotten tokens at
their start, move a row as a whole, which an encoding by distance does not notice. Padding between real tokens, sinks
whose neighbours are gone, and encodings that read absolute positions need the positions themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from posenc.encoding import BiasEncoding, Encoding, ScoreEncoding
from posenc.layers.cache.padding import has_gaps, within
from posenc.layers.cache.token_buffers import TokenData, num_tokens
from posenc.tracing import tracing
from posenc.validate import Causal, check_mask


class NewTokens(NamedTuple):
    """Keys and values projected from a call's input."""

    k: Tensor  # (batch, num_kv_heads, tokens, head_dim)
    v: Tensor  # (batch, num_kv_heads, tokens, value_dim)
    token_states: Sequence[Tensor | None] = ()  # what encodings keep of the tokens, one per encoding
    positions: Tensor | None = None  # None: no encoding reads any
    positions_from_caller: bool = False
    per_row_positions: bool = False  # whether padding or documents give each row positions of its own
    attention_mask: Tensor | None = None  # (batch, tokens), True at real tokens
    segments: Tensor | None = None  # (*batch, tokens)
    mask: Tensor | None = None  # the caller's, over the cache's keys and these
    window: int | None = None
    length: int | None = None  # declared for length-dependent rotations
    rotated: bool = True  # whether k is
    axes: int = 1  # coordinates of a position


class GrowingStep(NamedTuple):
    """What a `KVCache` will keep of one call, and what its counted positions were then."""

    cache: object  # whose step it is
    version: int  # of the cache: a step of an older version is refused
    all_tokens: TokenData  # cached and new
    past: int  # cached tokens
    tokens: int  # new tokens
    window: int | None  # tokens that a token attends to
    drops: bool  # whether tokens behind the window are forgotten
    in_place: bool
    rotated: bool
    length: int | None
    positions_from_caller: bool
    end: int  # where the position after the last new token is, where positions count
    detached_sinks: int  # sinks whose neighbours are gone
    edited: bool  # whether tokens between others are gone


class StaticStep(NamedTuple):
    """What a `StaticKVCache` will record of one call."""

    attention_mask: Tensor | None  # of the new tokens, (batch, tokens), True at real ones; None: all are
    tokens: int


class Keys(NamedTuple):
    """Cached and new keys that the queries of one call may attend to."""

    k: Tensor  # (batch, num_kv_heads, keys, head_dim)
    v: Tensor  # (batch, num_kv_heads, keys, value_dim)
    token_states: Sequence[Tensor | None]  # one per encoding, (batch, heads, keys, ...)
    positions: Tensor | None = None  # (batch | 1, keys, ...); None: they count
    positions_from_caller: bool = False
    attention_mask: Tensor | None = None  # (batch | 1, keys), True at real tokens; None: all are
    segments: Tensor | None = None  # (batch | 1, keys)
    mask: Tensor | None = None  # the caller's, over these keys
    visible: Tensor | None = None  # bool (rows, 1, queries | 1, keys), where a window by index does not say it
    window: int | None = None  # what is still to be applied of the window, by index
    step: GrowingStep | StaticStep | None = None  # what the cache will keep


def without_cache(new: NewTokens) -> Keys:
    """The keys of a call that knows no other tokens than its own."""
    positions, padding, window, visible = new.positions, new.attention_mask, new.window, None
    if window is not None and padding is not None and window < new.k.shape[2] and (tracing() or has_gaps(padding)):
        visible, window = within(padding, new.k.shape[2], window), None
    explicit = new.positions_from_caller or (positions is not None and positions.ndim == 2)
    return Keys(
        new.k, new.v, new.token_states, positions if explicit else None, new.positions_from_caller, padding,
        new.segments, new.mask, visible, window,
    )  # fmt: skip


def positions_for(
    new: NewTokens, keys: Keys, encodings: Sequence[Encoding], causal: Causal
) -> tuple[Tensor | None, Tensor | None]:
    """Positions of queries and keys for the encodings that `attention` applies; None for both: its default."""
    by_position = causal == "positions"
    if new.positions is None or not (encodings or by_position):
        return None, None
    readers = [e for e in encodings if e.axes]
    if not (readers or by_position):
        return None, None
    step = keys.step if isinstance(keys.step, GrowingStep) else None
    from_zero = step is None or step.end == keys.k.shape[2]  # counted positions of the keys are 0, 1, 2, …
    if keys.positions is None and from_zero:
        return None, None
    if not by_position and not keys.positions_from_caller and all(map(_reads_distance_only, readers)):
        # A row that is moved as a whole has the same distances; gaps would change them, of sinks and of padding.
        padding = keys.attention_mask
        gaps = step is not None and (step.edited or (step.detached_sinks > 0 and not from_zero))
        # Values are not known while tracing.
        if not gaps and (padding is None or (not tracing() and not has_gaps(padding))):
            return None, None
    if keys.positions is None and step is not None:
        return new.positions, count_with_gap(step.end, keys.k.shape[2], step.detached_sinks, keys.k.device)
    return new.positions, keys.positions


def mask_for(keys: Keys, q: Tensor) -> Tensor | None:
    """A caller's mask, padding and the window in one, as `attention` takes it."""
    combined = None if keys.mask is None else check_mask(keys.mask, q, keys.k)
    by_key = None if keys.attention_mask is None else keys.attention_mask[:, None, None, :]
    for part in (by_key, keys.visible):
        if part is not None:
            combined = part if combined is None else combined & part
    return combined


def columns(mask: object, step: GrowingStep, keys: int, seen: int, uncompacted: int | None) -> Tensor | None:
    """The columns of a caller's mask that belong to the visible keys.

    Args:
        mask: over the keys kept, or over all tokens that ever came; anything else is refused later.
        step: of the call.
        keys: how many are visible.
        seen: tokens that ever came before this call.
        uncompacted: newest tokens that no compaction of rows has moved; None: all.
    """
    if not isinstance(mask, Tensor):
        return mask  # type: ignore[return-value]
    held, ever, sinks = num_tokens(step.all_tokens), seen + step.tokens, step.detached_sinks
    if mask.shape[-1] == ever != held:
        if uncompacted is not None:
            raise ValueError("mask must be over the keys that are kept: rows were put together without padding")
        # What a window has forgotten lies between the sinks and the others.
        parts = (mask[..., :sinks], mask[..., ever - held + sinks :])
        mask = torch.cat(parts, -1) if sinks else parts[1]
    return mask[..., held - keys :] if mask.shape[-1] == held else mask


def count_with_gap(end: int, keys: int, sinks: int, device: torch.device) -> Tensor:
    """The numbers up to ``end`` (exclusive) of ``keys`` tokens, ``(keys,)``; the first ``sinks`` count from 0."""
    if not sinks:
        return torch.arange(end - keys, end, device=device)
    index = torch.arange(keys, device=device)
    return torch.where(index < sinks, index, index + (end - keys))


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
