"""A transformers cache that also keeps token positions, and what encodings remember of tokens, with the keys.

They are a few more channels of each key, bit for bit, so whatever a cache does with its keys (growing, a fixed room,
windows, cropping, another order of beams, moving to a CPU) it does with them. Keys are kept as they were before any
rotation: every call rotates all of them, which serves rotations that change with the length as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


class PositionedCache:
    """Stands for a cache in one layer's call. Gradients reach what is remembered only of this call's own tokens
    where the bits have another dtype than the keys.

    Args:
        cache: of transformers, of any kind that keeps keys as they come.
        positions: of the new tokens, ``(batch, tokens)``.
        features: what each encoding remembers of them, ``(batch, heads, tokens, ...)`` or None.

    Attributes:
        positions, features: after `update`, those of all keys that it gave.
    """

    def __init__(self, cache: Any, positions: Tensor, features: Sequence[Tensor | None]) -> None:
        self.cache, self.positions, self.features = cache, positions, list(features)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cache, name)

    def update(self, k: Tensor, v: Tensor, layer_idx: int, *args: Any, **given: Any) -> tuple[Tensor, Tensor]:
        """Keep the new keys and values with what belongs to them; those that the cache has."""
        parts = [self.positions.expand(k.shape[0], -1)[..., None]]
        parts += [feature.movedim(2, 1).flatten(2) for feature in self.features if feature is not None]
        wide = torch.cat([k, _packed(parts, k)], -1)
        self._room(wide, v, layer_idx)
        keys, values = self.cache.update(wide, v, layer_idx, *args, **given)
        if keys.shape[2] == k.shape[2]:  # nothing older: as they came, with their gradients
            return k, values
        kept = _unpacked(keys[..., k.shape[-1] :], parts)
        self.positions = kept.pop(0)[..., 0]
        self.features = [None if old is None else _shaped(kept.pop(0), old) for old in self.features]
        return keys[..., : k.shape[-1]], values

    def _room(self, wide: Tensor, v: Tensor, layer_idx: int) -> None:
        """Make room for the wider keys where a cache of fixed size was made before it saw any."""
        layers = getattr(self.cache, "layers", [])
        layer = layers[layer_idx] if layer_idx < len(layers) else None
        keys = getattr(layer, "keys", None)
        if layer is None or keys is None or keys.ndim < 4 or keys.shape[-1] == wide.shape[-1]:
            return
        if int(layer.get_seq_length()):
            raise ValueError(
                "past_key_values: these keys were kept without the encodings that are attached now; begin with an "
                "empty cache"
            )
        layer.lazy_initialization(wide, v)


def _packed(parts: Sequence[Tensor], k: Tensor) -> Tensor:
    """Numbers of each token as channels in the dtype of k, shared out over its heads."""
    batch, heads, tokens, _ = k.shape
    bits = torch.cat([_to_bits(part, k.dtype) for part in parts], -1)
    each = -(-bits.shape[-1] // heads)
    bits = functional.pad(bits, (0, each * heads - bits.shape[-1]))
    return bits.view(batch, tokens, heads, each).transpose(1, 2)


def _unpacked(channels: Tensor, parts: Sequence[Tensor]) -> list[Tensor]:
    """The numbers again, each in the dtype and with the count of its part."""
    bits, found, at = channels.transpose(1, 2).flatten(2), [], 0
    for part in parts:
        width = _width(part, channels.dtype)
        found.append(_from_bits(bits[..., at : at + width], part.dtype))
        at += width
    return found


def _width(part: Tensor, dtype: torch.dtype) -> int:
    """Channels that a part takes."""
    return int(part.shape[-1]) * max(1, part.dtype.itemsize // dtype.itemsize)


def _to_bits(part: Tensor, dtype: torch.dtype) -> Tensor:
    if part.dtype.itemsize < dtype.itemsize:
        return part.to(dtype)  # a narrower number fits into a wider one
    return part if part.dtype == dtype else part.contiguous().view(dtype)


def _from_bits(bits: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype.itemsize < bits.dtype.itemsize:
        return bits.to(dtype)
    return bits if bits.dtype == dtype else bits.contiguous().view(dtype)


def _shaped(flat: Tensor, like: Tensor) -> Tensor:
    """A remembered tensor ``(batch, heads, tokens, ...)`` of more tokens than ``like`` has."""
    heads, rest = like.shape[1], like.shape[3:]
    assert flat.shape[-1] == heads * math.prod(rest)
    return flat.view(*flat.shape[:2], heads, *rest).movedim(1, 2)
