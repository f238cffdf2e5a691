"""What a cache holds, for comparison: copies of its tensors, and its numbers."""

from __future__ import annotations

import torch

from posenc.layers import KVCache


def contents(cache: KVCache) -> list[object]:
    """Everything that a later call could tell from."""
    remaining = [cache.k, cache.v, cache.positions, cache.attention_mask, cache.segments]
    remaining += [*cache.token_states, *cache.last]
    tensors = [None if t is None else t.detach().clone() for t in remaining]
    return [*tensors, cache.rotated, cache.length, cache.seen, cache.next, cache.detached_sinks, cache.dropped_window]


def same(first: list[object], other: list[object]) -> bool:
    """Whether two of them are equal, to the last bit."""
    return len(first) == len(other) and all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) else a == b
        for a, b in zip(first, other, strict=True)
    )
