"""Rotation of queries and keys by angles that depend on the tokens."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from posenc.encoding import Context, Table, softcapped
from posenc.frequencies.rotation import Layout
from posenc.rotary._rotate import rotate_pairs
from posenc.score._inputs import products


def rotate_by_angles(q: Tensor, k: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
    """``q`` and ``k`` with pairs (j, j + head_dim/2) rotated by the angles of their tokens.

    Args:
        q: ``(batch, heads, queries, head_dim)``, of the last keys.
        k: ``(batch, num_kv_heads, keys, head_dim)``.
        angle: of all keys, ``(batch, rows, keys, pairs)``, radians; rows divide the heads, each for its neighbours.
    """
    table = angle.cos().to(q.dtype), angle.sin().to(q.dtype)
    return rotate_by_table(q, table_of_queries(table, q.shape[2]), "half"), rotate_by_table(k, table, "half")


def table_of_queries(table: Table, queries: int) -> Table:
    """cos and sin of the queries, from a table of all keys ``(batch, rows, keys, pairs)``."""
    cos, sin = table
    keys = cos.shape[2]
    if queries <= keys:
        return cos[..., keys - queries :, :], sin[..., keys - queries :, :]
    # Without an order the first ones may stand before the text, where nothing has rotated.
    ahead = (0, 0, queries - keys, 0)
    return F.pad(cos, ahead, value=1.0), F.pad(sin, ahead)


def rotate_by_table(x: Tensor, table: Table, layout: Layout) -> Tensor:
    """``x`` (batch, heads, tokens, head_dim) by cos and sin ``(batch, rows, tokens, pairs)``; rows divide the heads."""
    cos, sin = table
    grouped = x.unflatten(1, (cos.shape[1], -1))  # type: ignore[no-untyped-call]
    return rotate_pairs(grouped, cos.unsqueeze(2), sin.unsqueeze(2), layout).flatten(1, 2)


def replace_products(scores: Tensor, context: Context, q: Tensor, k: Tensor) -> Tensor:
    """Scores with the dot products of ``q`` and ``k`` instead of the context's own."""
    after = softcapped(products(context.with_qk(q, k)), context.softcap)
    return scores + (after - softcapped(products(context), context.softcap))
