"""The product over shared key heads (grouped queries): one function for scores, values and what encodings add."""

from __future__ import annotations

from torch import Tensor

from posenc.tracing import tracing


def by_key_head(rows: Tensor, per_key_head: Tensor) -> Tensor:
    """What query heads have times what their key heads have, ``(batch, heads, m, width)``.

    Args:
        rows: ``(batch, heads, m, n)``; heads a multiple of num_kv_heads, the heads of a group side by side.
        per_key_head: ``(batch, num_kv_heads, n, width)``, or its first two axes as one.
    """
    batch, heads, m, n = rows.shape
    if tracing():  # exporters cannot follow a fold at every length, and a compiler fuses the broadcast
        grouped = rows.view(batch, per_key_head.shape[1], -1, m, n)
        return (grouped @ per_key_head.unsqueeze(2)).flatten(1, 2)
    # Fold: the heads of a group become rows of one product. Broadcasting key heads along a group instead would copy
    # every key once for each query head, which takes ten times as long where queries are few.
    groups = per_key_head.shape[:-2]
    folded = rows.reshape(*groups, batch * heads * m // max(1, groups.numel()), n)
    return (folded @ per_key_head).view(batch, heads, m, per_key_head.shape[-1])
