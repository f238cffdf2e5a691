"""Rotation of queries and keys by angles that depend on the tokens."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from posenc.encoding import Context, softcapped
from posenc.rotary._rotate import rotate_pairs
from posenc.score._members import products


def rotate_by_angles(q: Tensor, k: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
    """``q`` and ``k`` with pairs (j, j + head_dim/2) rotated by the angles of their tokens.

    Args:
        q: ``(batch, heads, queries, head_dim)``, of the last keys.
        k: ``(batch, num_kv_heads, keys, head_dim)``.
        angle: of all keys, ``(batch, rows, keys, pairs)``, radians; rows divide the heads, each for its neighbours.
    """
    cos, sin = (wave.to(q.dtype) for wave in (angle.cos(), angle.sin()))
    queries, keys = q.shape[2], k.shape[2]
    if queries <= keys:
        of_queries = (cos[..., keys - queries :, :], sin[..., keys - queries :, :])
    else:  # without an order the first ones may stand before the text, where nothing has rotated
        ahead = (0, 0, queries - keys, 0)
        of_queries = (F.pad(cos, ahead, value=1.0), F.pad(sin, ahead))
    return _by_row(q, *of_queries), _by_row(k, cos, sin)


def replace_products(scores: Tensor, context: Context, q: Tensor, k: Tensor) -> Tensor:
    """Scores with the dot products of ``q`` and ``k`` instead of the context's own."""
    after = softcapped(products(context.with_qk(q, k)), context.softcap)
    return scores + (after - softcapped(products(context), context.softcap))


def _by_row(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    grouped = x.unflatten(1, (cos.shape[1], -1))  # type: ignore[no-untyped-call]
    return rotate_pairs(grouped, cos.unsqueeze(2), sin.unsqueeze(2), "half").flatten(1, 2)
