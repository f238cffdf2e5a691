"""Caches edited by token: which tokens stay, row by row or head by head, and keys that move to closed-up positions.

Attention has no memory of keys that are gone: a cache without some tokens is the whole one under a mask that hides
them, as long as what later tokens read of the others does not depend on their neighbours. Positions are a property of
the tokens that stay, so a gap remains where others were; closing it up rotates keys further (`rerotate`), which is
another text: the one of the tokens that stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from posenc.encoding import EmbeddingEncoding, Encoding, RotaryEncoding
from posenc.layers.cache.keys import window_bounds
from posenc.layers.cache.rerotation import check_movable, rerotate
from posenc.layers.cache.token_buffers import (
    PADDING,
    POSITIONS,
    SEGMENTS,
    TOKEN_STATES,
    K,
    TokenData,
    V,
    concatenated,
    num_tokens,
    token_axis,
)


class CachedTokens(NamedTuple):
    """What a cache holds, as editing sees it; a cache takes back what an edit returns."""

    parts: TokenData  # views of the live tokens; positions None: they count
    counted: Tensor  # (tokens,), their positions where they count
    following: Tensor  # (rows | 1, 1), the position of each row's next token
    rotated: bool  # whether keys are
    length: int | None  # declared for their rotation
    heads_differ: bool = False  # whether key heads hold different tokens, whose positions are nowhere


class EditedTokens(NamedTuple):
    """What stays in a cache, or two caches in one."""

    parts: TokenData  # new tensors; positions None: they count, or heads differ
    following: Tensor | None  # (rows | 1, 1), the position of each row's next token; None: the number of tokens
    heads_differ: bool


def edited(
    held: CachedTokens,
    indices: Tensor,
    encodings: Sequence[Encoding],
    *,
    dropped: bool,
    close_up: bool,
    positions_from_caller: bool = False,
) -> EditedTokens:
    """The tokens of ``indices`` alone, or all but those; see `KVCache.keep`.

    Raises:
        ValueError: as `KVCache.keep`.
    """
    parts, k = held.parts, held.parts[K]
    assert k is not None, "tokens have keys"
    tokens, positions, segments = num_tokens(parts), parts[POSITIONS], parts[SEGMENTS]
    order = kept_order(indices.to(k.device), tokens, k.shape[0], k.shape[1], dropped=dropped)
    per_head, kept = order.shape[1] > 1, order.shape[-1]
    if not kept:
        raise ValueError("at least one token must stay: clear() forgets all")
    inside = check_editable(encodings, per_head=per_head, rotated=held.rotated)
    if per_head and any(parts[kind] is not None for kind in (POSITIONS, PADDING, SEGMENTS)):
        raise ValueError("indices per key head need rows without padding, documents or positions of your own")
    if segments is not None and bool((order[..., -1] != tokens - 1).any()):
        raise ValueError("the newest token must stay where rows hold several documents")
    if close_up:
        check_closing(encodings, held)
        if segments is not None:
            raise ValueError("close_up: rows hold several documents, each with positions of its own")
    new = [None if t is None else taken(t, order, token_axis(i)) for i, t in enumerate(parts)]
    if not close_up:
        heads_differ = held.heads_differ or per_head
        if positions is None and not heads_differ:
            new[POSITIONS] = held.counted[order[:, 0]]
        return EditedTokens(new, held.following, heads_differ)
    old = held.counted[order] if positions is None else new[POSITIONS]
    keys, real = new[K], new[PADDING]
    assert keys is not None, "tokens have keys"
    assert old is not None, "positions are counted or held"
    closed = torch.arange(kept, device=k.device) if real is None else (real.cumsum(-1) - 1).clamp(min=0)
    if held.rotated:
        shared = old[:, 0] if old.ndim == 3 and not per_head else old
        new[K] = moved_keys(keys, inside, shared, closed.to(old.dtype), held.length)
    new[POSITIONS] = None if real is None and not positions_from_caller else closed.view(-1, kept)
    return EditedTokens(new, None if real is None else real.sum(-1, keepdim=True), False)


def joined(own: CachedTokens, prefix: CachedTokens, encodings: Sequence[Encoding]) -> EditedTokens:
    """A prefix and then the own tokens, which move behind it; see `KVCache.join`. Both hold tokens.

    Raises:
        ValueError: as `KVCache.join`.
    """
    check_closing(encodings, own)
    check_closing(encodings, prefix)
    after, before = list(own.parts), list(prefix.parts)
    fits = len(after) == len(before) and (own.rotated, own.length) == (prefix.rotated, prefix.length)
    for kind in (K, V, *range(TOKEN_STATES, len(after))):
        a, b = after[kind], before[kind] if fits else None
        if (a is None) != (b is None):
            fits = False
        elif a is not None and b is not None:
            same = a.shape[1] == b.shape[1] and a.shape[3:] == b.shape[3:] and a.dtype == b.dtype
            fits = fits and same and b.shape[0] in (1, a.shape[0])
    if not fits:
        raise ValueError("prefix must be a cache of the same layer, of one row or as many as this one has")
    starts = prefix.following  # where the own position 0 comes to lie
    places = own.counted[None] if after[POSITIONS] is None else after[POSITIONS]
    earlier = prefix.counted[None] if before[POSITIONS] is None else before[POSITIONS]
    keys = after[K]
    assert keys is not None, "tokens have keys"
    assert places is not None, "positions are counted or held"
    if own.rotated:
        inside = [e for e in encodings if not isinstance(e, EmbeddingEncoding)]
        after[K] = moved_keys(keys, inside, places, places + starts, own.length)
    after[POSITIONS], before[POSITIONS] = places + starts, earlier
    if after[PADDING] is not None or before[PADDING] is not None:
        for part in (after, before):
            if part[PADDING] is None:
                part[PADDING] = torch.ones(1, num_tokens(part), dtype=torch.bool, device=keys.device)
    return EditedTokens(concatenated(before, after), own.following + starts, False)


def kept_order(indices: Tensor, tokens: int, rows: int, key_heads: int, *, dropped: bool = False) -> Tensor:
    """The indices that stay, in the order of the text, ``(rows | 1, key_heads | 1, kept)``.

    Args:
        indices: ``(count,)`` of all rows, ``(rows, count)``, or ``(rows, key_heads, count)``; integers, each once.
        tokens: that are there.
        rows, key_heads: of the cache.
        dropped: whether the indices are those that go.
    """
    integers = isinstance(indices, Tensor) and not (
        indices.is_floating_point() or indices.is_complex() or indices.dtype == torch.bool
    )
    shape = tuple(indices.shape) if isinstance(indices, Tensor) else ()
    if not integers or shape[:-1] not in ((), (rows,), (rows, key_heads)) or not shape:
        raise ValueError(
            f"indices must be integers (count,), (rows, count) = ({rows}, count) or (rows, key heads, count) = "
            f"({rows}, {key_heads}, count), got {f'{indices.dtype} {shape}' if shape else repr(indices)}"
        )
    by_head = indices.long().view(*(1,) * (3 - len(shape)), *shape) if len(shape) != 2 else indices.long().unsqueeze(1)
    ordered = by_head.sort(-1).values
    wrong = (ordered < 0) | (ordered >= tokens)
    if bool(wrong.any()):
        raise ValueError(f"indices must be from 0 to {tokens - 1}, as the cache holds {tokens} tokens")
    if bool((ordered[..., 1:] == ordered[..., :-1]).any()):
        raise ValueError("indices must name each token once")
    if not dropped:
        return ordered
    stays = torch.ones(*ordered.shape[:2], tokens, dtype=torch.bool, device=ordered.device)
    stays.scatter_(2, ordered, False)
    return stays.nonzero()[:, -1].view(*ordered.shape[:2], tokens - ordered.shape[-1])


def taken(x: Tensor, order: Tensor, axis: int) -> Tensor:
    """The tokens of ``order`` (see `kept_order`) of a tensor whose tokens lie along ``axis``, 1 or 2; a new tensor."""
    order = order.to(x.device)
    if order.shape[:2] == (1, 1):
        return x.index_select(axis, order[0, 0])
    if axis == 1:
        order = order[:, 0]
        x = x.expand(order.shape[0], *x.shape[1:])
    index = order.view(*order.shape, *(1,) * (x.ndim - axis - 1))
    return torch.take_along_dim(x, index, axis)


def check_editable(encodings: Sequence[Encoding], *, per_head: bool, rotated: bool) -> list[Encoding]:
    """The encodings inside attention; a ValueError where a cache without some tokens is not the whole one, masked."""
    inside = [e for e in encodings if not isinstance(e, EmbeddingEncoding)]
    if not window_bounds(inside, True, False):
        names = ", ".join(type(e).__name__ for e in inside if not window_bounds([e], True, False))
        raise ValueError(f"encodings: tokens cannot be dropped under {names}: its logits read tokens between q and k")
    if per_head and not (rotated and all(isinstance(e, RotaryEncoding) for e in inside)):
        raise ValueError(
            "indices per key head need encodings that are rotations alone, whose keys are cached rotated: others read "
            "positions, which heads share"
        )
    return inside


def moved_keys(k: Tensor, encodings: Sequence[Encoding], old: Tensor, new: Tensor, length: int | None) -> Tensor:
    """Rotated keys ``(rows, key_heads, tokens, head_dim)`` at other positions, ``(rows | 1, tokens)`` or one a head."""
    shift = new - old
    if shift.ndim < 3:
        return rerotate(k, encodings, shift, length=length)
    for encoding in encodings:
        if getattr(encoding, "num_heads", None) is not None:
            raise ValueError(
                f"indices per key head cannot be closed up under {type(encoding).__name__}, whose heads rotate apart"
            )
    shift = shift.expand(k.shape[0], k.shape[1], -1)
    alone = rerotate(k.flatten(0, 1).unsqueeze(1), encodings, shift.flatten(0, 1), length=length)
    return alone.view(k.shape)


def check_closing(encodings: Sequence[Encoding], held: CachedTokens) -> None:
    """A ValueError where keys cannot move to other positions."""
    check_movable(encodings, held.length, rotated=held.rotated)
    positions = held.parts[POSITIONS]
    if positions is not None and positions.ndim > 2:
        raise ValueError(f"positions have {positions.shape[-1]} coordinates here, in which tokens have no order")
    if held.heads_differ:
        raise ValueError(
            "key heads hold different tokens since an earlier edit, and cannot move together: close up in that edit"
        )
