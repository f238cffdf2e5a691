"""Default positions: tokens count on from the cache, row by row where there is padding.

Padding is not counted, and every document of a packed row starts again at 0, so a padded or packed row has the
positions that it would have alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from posenc.layers.cache import KVCache
from posenc.positions.checking import default_positions as counted_from


def default_positions(
    tokens: int,
    device: torch.device,
    *,
    attention_mask: Tensor | None = None,
    segments: Tensor | None = None,
    cache: KVCache | None = None,
) -> Tensor:
    """Positions of the next tokens, ``(tokens,)``, or ``(batch | 1, tokens)`` where rows or documents differ.

    Args:
        tokens: how many.
        device: of the result.
        attention_mask: bool ``(batch, tokens)``, True at real tokens.
        segments: documents, ``(*batch, tokens)``; neighbouring tokens of one document have one number.
        cache: with the tokens before; None or empty: there are none.

    >>> default_positions(4, torch.device("cpu"), attention_mask=torch.tensor([[False, True, True, True]])).tolist()
    [[0, 0, 1, 2]]
    """
    if attention_mask is None and segments is None and (cache is None or cache._counted_only):
        return counted_from(tokens, device, 0 if cache is None else cache.next)
    before = None if cache is None or not len(cache) else cache
    real = torch.ones(1, tokens, dtype=torch.bool, device=device) if attention_mask is None else attention_mask
    count = _newest(before, device)
    if segments is None:
        return (real.cumsum(-1) + (count - 1)).clamp(min=0)
    documents = segments if segments.ndim == 2 else segments[None]
    rows = max(len(real), len(documents), len(count))
    real, documents, count = (t.expand(rows, -1) for t in (real, documents, count))
    # A column in front stands for the cache: the document that goes on, for tokens before the first real one too.
    first = documents[:, :1] if before is None else _document(before).expand(rows, 1)
    index = torch.arange(1, tokens + 1, device=device)
    newest = torch.where(real, index, 0).cummax(-1).values  # padding belongs to the document of the real token before
    of_tokens = torch.cat([first, documents], 1).gather(1, newest)
    begins = of_tokens != torch.cat([first, of_tokens[:, :-1]], 1)
    # Real tokens so far, those of the cache's document included; what had come when a document began is its 0.
    total = real.cumsum(-1) + count
    before_it = torch.where(begins, total - real.long(), 0).cummax(-1).values
    return (total - 1 - before_it).clamp(min=0)


def _newest(cache: KVCache | None, device: torch.device) -> Tensor:
    """Real tokens of each row's current document so far, ``(rows | 1, 1)``."""
    if cache is None:
        return torch.zeros(1, 1, dtype=torch.int64, device=device)
    return cache._following(device)


def _document(cache: KVCache) -> Tensor:
    """The number of each row's current document, ``(rows | 1, 1)``."""
    segments, attention_mask = cache.segments, cache.attention_mask
    if segments is None:
        raise ValueError("segments must be given in every call that shares a cache, or in none")
    if attention_mask is None:
        return segments[:, -1:]
    index = torch.arange(1, attention_mask.shape[1] + 1, device=attention_mask.device)
    newest = (torch.where(attention_mask, index, 0).amax(1, keepdim=True) - 1).clamp(min=0)
    return segments.expand(len(attention_mask), -1).gather(1, newest)
