"""What the scores of one layer may depend on."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from posenc.structure import Text


class Context(NamedTuple):
    """What the scores of one layer may depend on. See `posenc.encoding.ScoreEncoding` and `WeightEncoding`."""

    q: Tensor  # (batch, heads, queries, head_dim), already rotated, float32 or better
    k: Tensor  # (batch, num_kv_heads, keys, head_dim), already rotated, float32 or better
    q_pos: Tensor  # (*batch, queries)
    k_pos: Tensor  # (*batch, keys)
    mask: Tensor | None  # (batch | 1, heads | 1, queries, keys) bool, True where a query may look
    features: Tensor | None  # what this encoding's remember(x) gave for the keys
    scale: float  # the factor on q·k that the scores already contain
    v: Tensor  # (batch, num_kv_heads, keys, value_dim), float32 or better
    q_content: Tensor  # q before its rotation; the same tensor where nothing rotates
    k_content: Tensor  # k before its rotation
    softcap: float | None = None  # what the products of q and k, times the scale, were capped to: `softcapped`
    text: Text | None = None  # which tokens follow one another, for encodings that read it
    seen: Tensor | None = None  # keys that each query sees, (batch | 1, heads | 1, queries), where the mask is left out
    spans: tuple[Tensor, Tensor] | int | None = None  # length for rotations that ask: `ScoreEncoding.length_dependent`


def softcapped(products: Tensor, softcap: float | None) -> Tensor:
    """softcap · tanh(products / softcap): products of queries and keys, times the scale, kept within ± softcap."""
    return products if softcap is None else (products / softcap).tanh() * softcap
