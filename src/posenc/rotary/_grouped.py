"""Tables with rows of their own for each key head, which the query heads of its group share."""

from __future__ import annotations

from torch import Tensor

from posenc.encoding import Table
from posenc.rotary._rotate import Layout, rotate_pairs


def rotate_grouped(kind: str, x: Tensor, table: Table, layout: Layout, num_heads: int, num_kv_heads: int) -> Tensor:
    """``x`` (batch, heads, tokens, channels) turned by cos and sin ``(*batch, num_kv_heads, tokens, pairs)``.

    Args:
        kind: name of the class, for the error.
        num_heads, num_kv_heads: heads of queries and of keys that the encoding was made for.

    Raises:
        ValueError: for a tensor of heads that the rows of the table do not fall to.
    """
    cos, sin = table
    heads = x.shape[1]
    if num_heads % heads or heads % num_kv_heads:
        raise ValueError(
            f"num_kv_heads: this {kind} has frequencies for {num_heads} query and {num_kv_heads} key heads, "
            f"got a tensor of {heads} heads; queries must share the frequencies of their key: give num_kv_heads"
        )
    if heads == num_kv_heads:
        return rotate_pairs(x, cos, sin, layout)
    grouped = x.unflatten(1, (num_kv_heads, -1))  # type: ignore[no-untyped-call]
    return rotate_pairs(grouped, cos.unsqueeze(-3), sin.unsqueeze(-3), layout).flatten(1, 2)
