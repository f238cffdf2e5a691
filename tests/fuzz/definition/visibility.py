"""Who sees whom, pair by pair: the order of tokens, a window, documents, a mask."""

from __future__ import annotations

import torch
from torch import Tensor


def seen_pairs(
    q_pos: Tensor,
    k_pos: Tensor,
    of_queries: Tensor,
    of_keys: Tensor,
    mask: Tensor | None,
    *,
    heads: int,
    causal: object,
    window: int | None,
) -> Tensor:
    """``(batch, heads, queries, keys)`` bool, True where a query may look.

    Args:
        q_pos, k_pos: ``(batch, tokens)``; read where the order is that of positions.
        of_queries, of_keys: documents, ``(batch, tokens)``.
        mask: ``(batch | 1, heads | 1, queries | 1, keys)`` or None.
        causal: True, False or "positions".
        window: tokens that a query sees, or None.
    """
    (batch, queries), keys = of_queries.shape, of_keys.shape[1]
    own = torch.arange(queries)[:, None] + (keys - queries)
    other = torch.arange(keys)[None]
    if causal == "positions":
        back = q_pos[:, :, None] - k_pos[:, None, :]
        allowed = back >= 0
        if window is not None:
            allowed = allowed & (back < window)
    else:
        back = (own - other).expand(batch, -1, -1)
        allowed = back >= 0 if causal else torch.ones_like(back, dtype=torch.bool)
        if window is not None:
            allowed = allowed & (back < window) & (back > -window)
    allowed = allowed & (of_queries[:, :, None] == of_keys[:, None, :])
    allowed = allowed[:, None].expand(batch, heads, queries, keys)
    return allowed if mask is None else allowed & mask
