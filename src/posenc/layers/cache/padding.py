"""Padded rows in a cache under a window: which real tokens a query attends to, and which ones the cache keeps.

A window counts real tokens only. So keys are identified by their rank, the number of real tokens of the row
up to them, and what the window has left behind is taken out row by row: all rows then end at the same index again.
"""

from __future__ import annotations

import torch
from torch import Tensor

from posenc.layers.cache.token_buffers import PADDING, TokenData, num_tokens, token_axis


def has_gaps(attention_mask: Tensor) -> bool:
    """Whether some row has padding between real tokens, so that indices do not tell distances; looks at values.

    Args:
        attention_mask: bool ``(rows, tokens)``, True at real tokens.
    """
    begins = attention_mask[:, 1:] & ~attention_mask[:, :-1] & (attention_mask.cumsum(-1)[:, :-1] > 0)
    return bool(begins.any())


def within(attention_mask: Tensor, queries: int, window: int, sinks: int = 0) -> Tensor:
    """Which keys lie in the window of the last tokens of a row, counted in real tokens; or are its first ones.

    Args:
        attention_mask: bool ``(rows, keys)``, True at real tokens.
        queries: how many of the last tokens are queries.
        window: tokens that a token attends to, its own included.
        sinks: first real tokens of a row that are visible to all.

    Returns:
        bool ``(rows, 1, queries, keys)``.
    """
    rank = attention_mask.cumsum(-1)
    own_rank = rank[:, rank.shape[1] - queries :, None]
    near = (own_rank - rank[:, None, :]).abs() < window
    return (near | (rank <= sinks)[:, None, :] if sinks else near).unsqueeze(1)


def compacted(all_tokens: TokenData, newest: int, sinks: int, slack: int) -> TokenData:
    """Each row's first ``sinks`` and last ``newest`` real tokens, padded on the left; then the ``slack`` newest of all.

    Args:
        all_tokens: tensors that have padding among them, of more than ``sinks + newest + slack`` tokens.
    """
    tokens, attention_mask = num_tokens(all_tokens), all_tokens[PADDING]
    if attention_mask is None:
        raise RuntimeError("rows without padding need not be compacted")
    rank = attention_mask[:, : tokens - slack].cumsum(-1)
    stays = attention_mask[:, : tokens - slack] & ((rank <= sinks) | (rank > rank[:, -1:] - newest))
    order = stays.to(torch.uint8).sort(dim=-1, stable=True).indices[:, -(sinks + newest) :]
    order = torch.cat([order, torch.arange(tokens - slack, tokens, device=order.device).expand(len(order), -1)], 1)
    rows: TokenData = []
    for kind, x in enumerate(all_tokens):
        if x is None:
            rows.append(None)
            continue
        axis = token_axis(kind)
        shape = [len(order), *([1] * (axis - 1)), order.shape[1], *([1] * (x.ndim - axis - 1))]
        part = x.expand(len(order), *x.shape[1:])
        rows.append(torch.take_along_dim(part, order.view(shape), axis))
    rows[PADDING] = torch.cat([stays.gather(1, order[:, : sinks + newest]), attention_mask[:, tokens - slack :]], 1)
    return rows
