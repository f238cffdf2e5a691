"""posenc's `KVCache` as a layer of a transformers cache, so that `generate` can crop, repeat and reorder it.

An encoding may keep more of a token than its key and value (FoX: log gates), and keys whose rotation is not fixed are
kept un-rotated; neither has a place in the layers of transformers. So a `DynamicCache` gets layers of this kind.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicLayer

from posenc.layers import KVCache


class KVLayer(CacheLayerMixin):
    """One layer of a transformers cache, filled by `SelfAttention`. Keys lie rotated or not, as `KVCache` says."""

    is_sliding = False
    is_croppable = True

    def __init__(self) -> None:  # what the class above sets follows from the cache here
        self.kv = KVCache()

    @property
    def keys(self) -> Tensor | None:
        """``(batch, kv_heads, tokens, head_dim)``."""
        return self.kv.k

    @property
    def values(self) -> Tensor | None:
        """``(batch, kv_heads, tokens, head_dim)``."""
        return self.kv.v

    @property
    def is_initialized(self) -> bool:
        """Whether it holds tokens."""
        return self.kv.k is not None

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: the first call of the layer brings everything."""

    def update(self, key_states: Tensor, value_states: Tensor) -> tuple[Tensor, Tensor]:
        """Refused: keys and values alone are not all that an encoding may keep."""
        raise ValueError("past_key_values: this cache serves models of posenc, whose layers fill it themselves")

    def get_seq_length(self) -> int:
        """Tokens kept, padding included."""
        return len(self.kv)

    def get_max_length(self) -> int:
        """No maximum."""
        return -1

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Keys that the next ``query_length`` queries will meet, and the index of the first one."""
        return len(self.kv) + query_length, 0

    def reset(self) -> None:
        """Forget all tokens."""
        self.kv.take(KVCache())

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last tokens; their number is given as a negative one, as everywhere in transformers."""
        if tokens_to_remove > 0:
            raise ValueError(f"tokens_to_remove must be negative or 0, got {tokens_to_remove}")
        kept = len(self.kv) + tokens_to_remove
        self._map(lambda t: t[:, :, :kept], lambda t: t[:, :kept])

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Row i becomes what row ``beam_idx[i]`` was."""
        self.batch_select_indices(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Every row ``repeats`` times."""
        self._rows(lambda t: t.repeat_interleave(repeats, 0))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these rows, in this order."""
        self._rows(lambda t: t.index_select(0, indices.to(t.device)) if indices.dtype != torch.bool else t[indices])

    def _rows(self, change: Callable[[Tensor], Tensor]) -> None:
        batch = 0 if self.kv.k is None else self.kv.k.shape[0]
        self._map(change, lambda t: change(t) if t.shape[0] == batch else t)  # one row may serve them all

    def _map(self, change: Callable[[Tensor], Tensor], of_tokens: Callable[[Tensor], Tensor]) -> None:
        """Change what lies there by heads ``(batch, heads, tokens, ...)``, and by tokens ``(batch | 1, tokens)``."""
        kv = self.kv
        if kv.k is None or kv.v is None:
            return
        kv.features = [None if f is None else change(f) for f in kv.features]
        positions, padding, segments = (
            None if t is None else of_tokens(t) for t in (kv.positions, kv.padding, kv.segments)
        )
        kv.positions, kv.padding, kv.segments = positions, padding, segments
        kv.k, kv.v = change(kv.k), change(kv.v)


def kv_caches(cache: Cache, layers: int) -> list[KVCache]:
    """The caches of a model's layers in a transformers cache; an empty `DynamicCache` gets them now.

    Raises:
        ValueError: for a cache that another model filled, or of a kind that has no room for what encodings keep.
    """
    if not isinstance(cache, Cache) or cache.offloading:
        kind = f"an offloading {type(cache).__name__}" if isinstance(cache, Cache) else type(cache).__name__
        raise ValueError(f"past_key_values must be a DynamicCache that does not offload, got {kind}")
    for index in range(layers):
        if index == len(cache.layers):
            cache.layers.append(KVLayer())
        layer = cache.layers[index]
        if type(layer) is DynamicLayer and not layer.is_initialized:
            cache.layers[index] = KVLayer()
        elif not isinstance(layer, KVLayer):
            kind = f"{type(cache).__name__} with {type(layer).__name__}"
            raise ValueError(f"past_key_values must be an empty DynamicCache or one that posenc filled, got {kind}")
    return [layer.kv for layer in cache.layers[:layers]]
