"""posenc's `KVCache` as a layer of a transformers cache, so that `generate` can crop, repeat and reorder it.

An encoding may keep more of a token than its key and value (FoX: log gates), and keys whose rotation is not fixed are
kept un-rotated; neither has a place in the layers of transformers. So a `DynamicCache` gets layers of this kind.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicLayer
from transformers.modeling_outputs import BaseModelOutputWithPast

from posenc.layers import KVCache

OUT = "cache" if "cache" in {field.name for field in fields(BaseModelOutputWithPast)} else "past_key_values"
"""What transformers calls the cache that a model returns."""


class KVLayer(CacheLayerMixin):
    """One layer of a transformers cache, filled by `SelfAttention`. Keys lie rotated or not, as `KVCache` says."""

    is_sliding = False
    is_croppable = True

    def __init__(self) -> None:  # what the class above sets follows from the cache here
        self.kv = KVCache()

    @property
    def keys(self) -> Tensor | None:
        """``(batch, num_kv_heads, tokens, head_dim)``."""
        return self.kv.k

    @property
    def values(self) -> Tensor | None:
        """``(batch, num_kv_heads, tokens, head_dim)``."""
        return self.kv.v

    @property
    def is_initialized(self) -> bool:
        """Whether it holds tokens."""
        return self.kv.k is not None

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: the first call of the layer brings everything."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Refused: keys and values alone are not all that an encoding may keep."""
        raise ValueError("cache, past_key_values: this cache serves models of posenc, whose layers fill it themselves")

    def get_seq_length(self) -> int:
        """Tokens seen, padding included."""
        return self.kv.seen

    def get_max_length(self) -> int:
        """No maximum."""
        return -1

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Keys that the next ``query_length`` queries will meet, and the index of the first one."""
        return self.kv.seen + query_length, 0

    def reset(self) -> None:
        """Forget all tokens."""
        self.kv.clear()

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last tokens; their number is given as a negative one, as everywhere in transformers."""
        if tokens_to_remove > 0:
            raise ValueError(f"tokens_to_remove must be negative or 0, got {tokens_to_remove}")
        self.kv.crop(-tokens_to_remove)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Row i becomes what row ``beam_idx[i]`` was."""
        self.kv.select(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Every row ``repeats`` times."""
        self.kv.repeat(repeats)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these rows, in this order."""
        self.kv.select(indices)


def kv_caches(cache: Cache, layers: int) -> list[KVCache]:
    """The caches of a model's layers in a transformers cache; an empty `DynamicCache` gets them now.

    Raises:
        ValueError: for a cache that another model filled, or of a kind that has no room for what encodings keep, and
            for one that a call has left unfinished.
    """
    if not isinstance(cache, Cache) or cache.offloading:
        kind = f"an offloading {type(cache).__name__}" if isinstance(cache, Cache) else type(cache).__name__
        raise ValueError(f"cache, past_key_values must be a DynamicCache that does not offload, got {kind}")
    for index in range(layers):
        if index == len(cache.layers):
            cache.layers.append(KVLayer())
        layer = cache.layers[index]
        if type(layer) is DynamicLayer and not layer.is_initialized:
            cache.layers[index] = KVLayer()
        elif not isinstance(layer, KVLayer):
            kind = f"{type(cache).__name__} with {type(layer).__name__}"
            raise ValueError(f"cache, past_key_values must be a DynamicCache, empty or filled by posenc, got {kind}")
    caches = [layer.kv for layer in cache.layers[:layers]]
    seen = [kv.seen for kv in caches]
    if len(set(seen)) > 1:
        raise ValueError(
            f"cache, past_key_values: the layers hold {min(seen)} to {max(seen)} tokens, as where a call was "
            "interrupted between them: begin with an empty cache"
        )
    return caches


def one_cache(cache: Any, past_key_values: Any) -> Any:
    """The cache of a call, which gives it under one of its names."""
    if cache is not None and past_key_values is not None:
        raise ValueError("cache and past_key_values are two names of one argument: give one of them")
    return past_key_values if cache is None else cache
