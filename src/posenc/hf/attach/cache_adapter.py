"""A transformers cache that also keeps token positions, and what encodings keep of tokens, with the keys.

Idea: an attached encoding needs the position of every cached key, and some (FoX: log gates) keep more of a token.
Caches of transformers store keys and values only, but do many things with them: grow, fill a fixed room, slide a
window, crop, repeat rows, reorder beams, move to the CPU. Instead of wrapping each kind of cache, this adapter appends
the extra numbers to the channels of each key, bit for bit: int64 positions and float32 token states are viewed as
numbers of the keys' dtype. Whatever a cache does with its keys, it then does with the extra numbers as well.

Invariants:
- The cache only copies and selects keys and never computes with them: quantized caches would destroy the bits.
- Keys are stored before any rotation, and every call rotates all of them. This costs one rotation of the visible keys a
  step, and is what makes frequencies that change with the length exact, like every encoding that needs plain keys.
- Values and the keys' first channels are what the cache returns; only keys are wider, by the same width in every call.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


class PositionedCache:
    """A transformers cache during the call of one layer, with positions and token states attached to its keys.

    Gradients reach states of this call's own tokens alone where the states' dtype differs from the keys' dtype.

    Args:
        cache: of transformers, of any kind that stores keys unchanged.
        positions: of the new tokens, ``(batch, tokens)``.
        token_states: what each encoding keeps of the new tokens, ``(batch, heads, tokens, ...)`` or None.

    Attributes:
        positions, token_states: after `update`, those of all keys that it returned.
    """

    def __init__(self, cache: Any, positions: Tensor, token_states: Sequence[Tensor | None]) -> None:
        self.cache, self.positions, self.token_states = cache, positions, list(token_states)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cache, name)

    def update(self, k: Tensor, v: Tensor, layer_idx: int, *args: Any, **options: Any) -> tuple[Tensor, Tensor]:
        """Store new keys and values with their positions and token states; returns all keys and values."""
        extras = [self.positions.expand(k.shape[0], -1)[..., None]]
        extras += [token_state.movedim(2, 1).flatten(2) for token_state in self.token_states if token_state is not None]
        wide = torch.cat([k, _packed(extras, k)], -1)
        self._widen_fixed_cache(wide, v, layer_idx)
        keys, values = self.cache.update(wide, v, layer_idx, *args, **options)
        if keys.shape[2] == k.shape[2]:  # no older keys: the tensors as they came, which have gradients
            return k, values
        unpacked = _unpacked(keys[..., k.shape[-1] :], extras)
        self.positions = unpacked.pop(0)[..., 0]
        self.token_states = [None if new is None else _unflattened(unpacked.pop(0), new) for new in self.token_states]
        return keys[..., : k.shape[-1]], values

    def _widen_fixed_cache(self, wide: Tensor, v: Tensor, layer_idx: int) -> None:
        """Allocate again a cache of fixed size that was allocated for the narrower keys before the first call."""
        layers = getattr(self.cache, "layers", [])
        layer = layers[layer_idx] if layer_idx < len(layers) else None
        keys = getattr(layer, "keys", None)
        if layer is None or keys is None or keys.ndim < 4 or keys.shape[-1] == wide.shape[-1]:
            return
        if int(layer.get_seq_length()):
            raise ValueError(
                "past_key_values: these keys were cached without the encodings that are attached now; begin with an "
                "empty cache"
            )
        layer.lazy_initialization(wide, v)


def _packed(extras: Sequence[Tensor], k: Tensor) -> Tensor:
    """Numbers of each token ``(batch, tokens, width)`` as channels in the dtype of k, spread over its heads."""
    batch, heads, tokens, _ = k.shape
    bits = torch.cat([_to_bits(extra, k.dtype) for extra in extras], -1)
    each = -(-bits.shape[-1] // heads)
    bits = functional.pad(bits, (0, each * heads - bits.shape[-1]))
    return bits.view(batch, tokens, heads, each).transpose(1, 2)


def _unpacked(channels: Tensor, extras: Sequence[Tensor]) -> list[Tensor]:
    """The inverse of `_packed`, with the dtypes and widths of ``extras``."""
    bits, start, unpacked = channels.transpose(1, 2).flatten(2), 0, []
    for extra in extras:
        width = _width(extra, channels.dtype)
        unpacked.append(_from_bits(bits[..., start : start + width], extra.dtype))
        start += width
    return unpacked


def _width(extra: Tensor, dtype: torch.dtype) -> int:
    """The channels of ``dtype`` that a tensor takes."""
    return int(extra.shape[-1]) * max(1, extra.dtype.itemsize // dtype.itemsize)


def _to_bits(extra: Tensor, dtype: torch.dtype) -> Tensor:
    if extra.dtype.itemsize < dtype.itemsize:
        return extra.to(dtype)  # a narrower number fits into a wider one exactly
    return extra if extra.dtype == dtype else extra.contiguous().view(dtype)


def _from_bits(bits: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype.itemsize < bits.dtype.itemsize:
        return bits.to(dtype)
    return bits if bits.dtype == dtype else bits.contiguous().view(dtype)


def _unflattened(flat: Tensor, like: Tensor) -> Tensor:
    """A token_state ``(batch, heads, tokens, ...)`` of all tokens, shaped like the new tokens' token_state."""
    heads, rest = like.shape[1], like.shape[3:]
    assert flat.shape[-1] == heads * math.prod(rest)
    return flat.view(*flat.shape[:2], heads, *rest).movedim(1, 2)
