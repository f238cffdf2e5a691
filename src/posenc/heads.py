"""The product over shared key heads (grouped queries): one function for scores, values and what encodings add."""

from __future__ import annotations

import torch
from torch import Tensor

from posenc.tracing import tracing

WIDENED = 1 << 19  # numbers that are widened at a time: 2 MiB in float32


def by_key_head(rows: Tensor, per_key_head: Tensor) -> Tensor:
    """What query heads have times what their key heads have, ``(batch, heads, m, width)``.

    Args:
        rows: ``(batch, heads, m, n)``; heads a multiple of num_kv_heads, the heads of a group side by side.
        per_key_head: ``(batch, num_kv_heads, n, width)``, or its first two axes as one; also with fewer digits than
            the rows.
    """
    batch, heads, m, n = rows.shape
    if tracing():  # exporters cannot follow a fold at every length, and a compiler fuses the broadcast
        grouped = rows.view(batch, per_key_head.shape[1], -1, m, n)
        return (grouped @ per_key_head.to(rows.dtype).unsqueeze(2)).flatten(1, 2)
    # Fold: the heads of a group become rows of one product. Broadcasting key heads along a group instead would copy
    # every key once for each query head, which takes ten times as long where queries are few.
    groups = per_key_head.shape[:-2]
    folded = rows.reshape(*groups, batch * heads * m // max(1, groups.numel()), n)
    if per_key_head.dtype == rows.dtype:
        out = folded @ per_key_head
    else:  # a wide copy of a long cache would be written to memory and read again: some heads at a time stay near
        folded, per_key_head = folded.flatten(0, -3), per_key_head.flatten(0, -3)
        some = max(1, WIDENED // max(1, n * per_key_head.shape[-1]))
        parts = [slice(first, first + some) for first in range(0, max(1, len(folded)), some)]
        out = torch.cat([folded[part] @ per_key_head[part].to(rows.dtype) for part in parts])
    return out.view(batch, heads, m, per_key_head.shape[-1])
