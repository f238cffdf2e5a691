"""What a score encoding was made for and what a call brings: ValueErrors that name both."""

from __future__ import annotations

from torch import Tensor, nn


def check_width(encoding: nn.Module, head_dim: int, q: Tensor) -> None:
    """Raise a ValueError unless queries ``(batch, heads, queries, head_dim)`` are as wide as the encoding is for."""
    if q.shape[-1] != head_dim:
        raise ValueError(f"head_dim of this {type(encoding).__name__} is {head_dim}, got queries of {tuple(q.shape)}")


def check_key_heads(encoding: nn.Module, num_kv_heads: int, k: Tensor) -> None:
    """Raise a ValueError unless keys ``(batch, heads, keys, head_dim)`` have its heads, or repeats of them."""
    if k.shape[1] % num_kv_heads:
        raise ValueError(
            f"num_kv_heads of this {type(encoding).__name__} is {num_kv_heads}, got keys of {tuple(k.shape)}"
        )
