"""Which document each token of a packed row belongs to, from what collators of transformers and trl hand over.

A row that holds several documents tells them apart in one of three ways: ``position_ids`` that start again (what
`DataCollatorWithFlattening` gives, and trl's padding-free collator), ``seq_idx``, the number of each token's document,
or ``cu_seq_lens_q`` and ``cu_seq_lens_k``, where each document begins in the one row of a flattened batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from posenc.arguments import shown
from posenc.layers import KVCache
from posenc.positions import segments_from_cu_seqlens
from posenc.tracing import tracing

_INTEGERS = (torch.int32, torch.int64)


def documents_of(
    x: Tensor,
    *,
    position_ids: Tensor | None,
    padding: Tensor | None,
    cache: KVCache | None,
    seq_idx: Tensor | None,
    cu_seq_lens_q: Tensor | None,
    cu_seq_lens_k: Tensor | None,
) -> Tensor | None:
    """The number of each token's document, ``(batch | 1, tokens)``; None where each row is one document.

    Args:
        x: the tokens' embeddings, ``(batch, tokens, dim)``.
        position_ids: ``(batch | 1, tokens)``. A document begins where a position is not greater than that of the
            token before it, padding apart; gaps, as of positions drawn at random, begin none.
        padding: ``(batch, tokens)``, True at real tokens.
        cache: of a layer, with the tokens before; a row goes on with its last document.
        seq_idx: ``(batch | 1, tokens)``.
        cu_seq_lens_q, cu_seq_lens_k: ``(documents + 1,)``, cumulative lengths from 0; both alike.

    Raises:
        ValueError: for numbers that do not fit the tokens, and for documents that begin behind a cache of rows of one
            document each.
    """
    past = cache if cache is not None and len(cache) else None
    numbered = seq_idx if seq_idx is not None else _by_starts(cu_seq_lens_q, cu_seq_lens_k, x)
    if numbered is not None:
        _check_numbers(seq_idx, x)
        if past is not None:
            raise ValueError("seq_idx, cu_seq_lens_q: a packed row comes in one call, and the cache has tokens already")
        return numbered
    last = None if past is None or past.segments is None else past.segments[:, -1:]
    if position_ids is None:
        return None if last is None else last.expand(-1, x.shape[1])
    begins = _begins(position_ids, padding, past)
    if last is not None:
        return last + begins.cumsum(-1)
    if not tracing() and not bool(begins.any()):
        return None
    if past is not None:
        raise ValueError(
            "position_ids start again, and the cache holds rows of one document each: give all documents of a row in "
            "its first call, or each document a cache of its own"
        )
    return begins.cumsum(-1)


def _begins(position_ids: Tensor, padding: Tensor | None, past: KVCache | None) -> Tensor:
    """Where a document begins that is not the first one, bool ``(batch | 1, tokens)``."""
    before = position_ids.amin(-1, keepdim=True) - 1 if past is None else _newest(past, position_ids.device)
    rows = max(len(position_ids), len(before), 1 if padding is None else len(padding))
    row = torch.cat([before.expand(rows, 1), position_ids.expand(rows, -1)], 1)
    if padding is None:
        return row[:, 1:] <= row[:, :-1]
    index = torch.arange(1, row.shape[1], device=row.device)
    real = torch.where(padding, index, 0).cummax(-1).values  # the newest real token up to each; 0: before the call
    of_before = torch.cat([torch.zeros_like(real[:, :1]), real[:, :-1]], 1)
    return padding & (row[:, 1:] <= row.gather(1, of_before.expand(rows, -1)))


def _newest(cache: KVCache, device: torch.device) -> Tensor:
    """The position of each row's newest real token, ``(batch | 1, 1)``."""
    positions, mask = cache.positions, cache.attention_mask
    if positions is None:
        return torch.full((1, 1), cache.next - 1, device=device)
    if mask is None:
        return positions[:, -1:]
    index = torch.arange(mask.shape[1], device=device)
    newest = torch.where(mask, index, 0).amax(1, keepdim=True)
    return positions.expand(len(mask), -1).gather(1, newest)


def _by_starts(cu_seq_lens_q: Tensor | None, cu_seq_lens_k: Tensor | None, x: Tensor) -> Tensor | None:
    """The documents of a flattened batch, ``(1, tokens)``."""
    if cu_seq_lens_q is None and cu_seq_lens_k is None:
        return None
    if (
        not isinstance(cu_seq_lens_q, Tensor)
        or not isinstance(cu_seq_lens_k, Tensor)
        or cu_seq_lens_q.tolist() != cu_seq_lens_k.tolist()
        or len(x) != 1
    ):
        raise ValueError(
            "cu_seq_lens_q and cu_seq_lens_k must both be given, alike, for a batch of one row, got "
            f"{shown(cu_seq_lens_q)} and {shown(cu_seq_lens_k)} for {len(x)} rows"
        )
    try:
        return segments_from_cu_seqlens(cu_seq_lens_q, x.shape[1])[None]
    except ValueError as error:
        raise ValueError(f"cu_seq_lens_q, cu_seq_lens_k: {error}") from None


def _check_numbers(seq_idx: Tensor | None, x: Tensor) -> None:
    if seq_idx is None:
        return
    batch, tokens = x.shape[:2]
    shapes = ((batch, tokens), (1, tokens))
    if not isinstance(seq_idx, Tensor) or seq_idx.dtype not in _INTEGERS or tuple(seq_idx.shape) not in shapes:
        raise ValueError(f"seq_idx must be integers (batch | 1, tokens) = {shapes[0]}, got {shown(seq_idx)}")
