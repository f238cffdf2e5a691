"""Caches edited by token: which tokens stay, row by row or head by head, and keys that move to closed-up positions.

Attention has no memory of keys that are gone: a cache without some tokens is the whole one under a mask that hides
them, as long as what later tokens read of the others does not depend on their neighbours. Positions are a property of
the tokens that stay, so a gap remains where others were; closing it up rotates keys further (`rerotate`), which is
another text: the one of the tokens that stay.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from posenc.encoding import EmbeddingEncoding, Encoding, RotaryEncoding
from posenc.layers.cache.keys import window_bounds
from posenc.layers.cache.rerotation import check_movable, rerotate


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


def check_closing(encodings: Sequence[Encoding], length: int | None, *, rotated: bool, axes: int) -> None:
    """A ValueError where keys cannot move to other positions."""
    check_movable(encodings, length, rotated=rotated)
    if axes > 1:
        raise ValueError(f"close_up: positions have {axes} coordinates here, in which tokens have no order")
