"""Validation of a layer's constructor and call: every error names the argument."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from posenc import positions as position
from posenc.arguments import check_kv_heads, check_whole, shown
from posenc.encoding import Table
from posenc.layers.cache import KVCache, StaticKVCache


def check_widths(dim: int, num_heads: int, num_kv_heads: int | None, head_dim: int | None) -> tuple[int, int]:
    """Key heads and the width of a head; a ValueError unless the sizes of a layer fit together."""
    check_whole("dim", dim)
    num_kv_heads = check_kv_heads(num_heads, num_kv_heads)
    if head_dim is None:
        if dim % num_heads:
            raise ValueError(f"dim must be a multiple of num_heads = {num_heads}, got {dim}; or give head_dim")
        return num_kv_heads, dim // num_heads
    check_whole("head_dim", head_dim)
    return num_kv_heads, head_dim


def check_input(x: Tensor, dim: int) -> None:
    """Raise a ValueError unless x is a batch of tokens of a layer's width."""
    if not isinstance(x, Tensor):
        raise ValueError(f"x must be a tensor (batch, tokens, {dim}), got {shown(x)}")
    if x.ndim != 3 or x.shape[-1] != dim:
        raise ValueError(f"x must be (batch, tokens, {dim}), got {tuple(x.shape)}")


def check_positions(x: Tensor, positions: Tensor | None, attention_mask: Tensor | None, axes: int) -> None:
    """Raise a ValueError unless positions and padding fit the tokens of x; ``axes`` 0: no encoding reads positions."""
    if positions is not None and axes:
        position.check("positions", positions, x.shape[1], x.shape[0], axes)
    elif axes > 1:
        raise ValueError(
            f"positions must be given: these encodings need {axes} coordinates a position, "
            f"(tokens, {axes}) or (batch, tokens, {axes}); posenc.positions.grid(rows, columns) makes an image's"
        )
    if attention_mask is not None:
        _check_padding(attention_mask, x)


def check_options(x: Tensor, segments: Tensor | None, cache: object, tables: Sequence[Table] | None) -> None:
    """Raise a ValueError unless segments fit the tokens of x, and cache and tables have their types."""
    if segments is not None:
        if not isinstance(segments, Tensor) or segments.ndim not in (1, 2) or segments.shape[-1] != x.shape[1]:
            raise ValueError(_segments_of(x, segments))
        if segments.ndim == 2 and segments.shape[0] != 1 and segments.shape[0] != x.shape[0]:
            raise ValueError(_segments_of(x, segments))
    if cache is not None and not isinstance(cache, KVCache | StaticKVCache):
        raise ValueError(f"cache must be a KVCache, a StaticKVCache or None, got {shown(cache)}")
    if tables is not None and not (
        isinstance(tables, list | tuple) and all(isinstance(table, tuple) for table in tables)
    ):
        raise ValueError(f"tables must hold the result of each rotary encoding's table(...), got {shown(tables)}")


def _segments_of(x: Tensor, segments: object) -> str:
    """The error message for segments; built only for an error: a compiler fixes every size that enters a string."""
    got = tuple(segments.shape) if isinstance(segments, Tensor) else shown(segments)
    return f"segments must be (tokens,) or (batch, tokens) = {tuple(x.shape[:2])}, got {got}"


def real_tokens(attention_mask: Tensor | None) -> Tensor | None:
    """Padding as bool; integers 0 and 1, as tokenizers of transformers give them, stand for False and True."""
    integers = (
        isinstance(attention_mask, Tensor)
        and not attention_mask.is_floating_point()
        and not attention_mask.is_complex()
    )
    return attention_mask.bool() if integers and attention_mask is not None else attention_mask


def _check_padding(attention_mask: Tensor, x: Tensor) -> None:
    if (
        isinstance(attention_mask, Tensor)
        and attention_mask.dtype == torch.bool
        and attention_mask.shape == x.shape[:2]
    ):
        return
    got = (
        f"{attention_mask.dtype} {tuple(attention_mask.shape)}"
        if isinstance(attention_mask, Tensor)
        else shown(attention_mask)
    )
    raise ValueError(
        f"attention_mask must be bool (batch, tokens) = {tuple(x.shape[:2])}, True at real tokens, got {got}"
    )
