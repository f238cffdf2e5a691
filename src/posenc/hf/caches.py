"""Caches of transformers edited by token: which tokens stay, layer by layer or head by head, and joined prefixes.

    editor = CacheEditor(model)
    editor.keep(cache, torch.tensor([0, 1, 2, 3, 900, 901]), close_up=True)     # of what cache = DynamicCache() holds
    editor.join(cache, prefix)

A cache of transformers holds no positions. Tokens that stay where they are leave a gap, which the caller's
``position_ids`` go on behind; closed up, cached keys are rotated further, and the model counts on by itself.

How a model's cached keys rotate is read from its configuration and seen in the model: a text of one token has the same
hidden states at all positions, so its cached keys at two positions differ by the rotation between them and by nothing
else. That tells which channels rotate, in which order, and whether in the keys or, of latent attention, in what
transformers keeps beside the latent vectors; a layer whose keys do otherwise refuses to move.

Windows count keys, not positions: a layer under a window may lose tokens from the middle only where the others close
up, and keeps no token that it has forgotten. What a layer cannot do is refused before anything changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypedDict, Unpack, cast

import torch
from torch import Tensor, nn
from transformers import Cache, EncoderDecoderCache, PreTrainedModel
from transformers.cache_utils import (
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionCacheLayerMixin,
)

from posenc.arguments import check_whole, shown
from posenc.encoding import RotaryEncoding
from posenc.hf.attach.attention_function import NAME
from posenc.hf.config.facts import ModelFacts
from posenc.hf.config.layers import CHUNKED, LayerFacts
from posenc.hf.config.rope_config import model_from_config
from posenc.hf.config.rotation import built, text_rope
from posenc.hf.config.text_config import is_posenc_config, max_length
from posenc.layers.cache.editing import kept_order, moved_keys, taken
from posenc.layers.cache.rerotation import check_movable
from posenc.rotary._leading import Leading
from posenc.rotary.mrope import MRoPE

ByLayer = Tensor | Sequence[Tensor | None]
_PARTS = ("keys", "values")  # what transformers calls the two tensors of a layer
_FARTHEST = 100_000  # positions of the probe: beyond, float32 angles say too little
_GAPS = "posenc_gaps"  # attribute of a cache whose positions do not count


class _Rotated(NamedTuple):
    """What of a layer's cached tensors rotates."""

    part: str  # of _PARTS
    encoding: RotaryEncoding  # of the first channels
    roll: int  # channels to roll by, so that those which rotate come first

    def moved(self, x: Tensor, old: Tensor, new: Tensor) -> Tensor:
        """``(rows, heads, tokens, channels)`` at other positions, ``(rows | 1, tokens)`` or one a head."""
        rolled = x.roll(self.roll, -1) if self.roll else x
        moved = moved_keys(rolled, [self.encoding], old, new, None)
        return moved.roll(-self.roll, -1) if self.roll else moved


class _Layer(NamedTuple):
    """One layer of a cache that holds tokens."""

    number: int
    cached: Any  # of transformers
    facts: LayerFacts
    tokens: int  # of the text, forgotten ones included
    window: int | None

    @property
    def held(self) -> int:
        return int(self.cached.keys.shape[-2])

    def refuse(self, reason: str) -> ValueError:
        return ValueError(f"cache: layer {self.number}: {reason}")


class EditOptions(TypedDict, total=False):
    """What `CacheEditor.keep` and `CacheEditor.drop` take besides the indices.

    Attributes:
        positions: of the tokens in the cache, ``(tokens,)``, ``(rows | 1, tokens)`` or one a head, or a list with one a
            layer. Default: they count from 0; after an edit that left gaps they must be given.
        attention_mask: ``(rows, tokens)``, 1 at real tokens, of rows with padding, whose positions must be given.
        close_up: whether the tokens that stay move together, to positions 0 … count − 1 (padding not counted). Else
            they stay where they are, and the ``position_ids`` of tokens to come are the caller's: those that they would
            have had.
    """

    positions: ByLayer | None
    attention_mask: Tensor | None
    close_up: bool


class CacheEditor:
    """Edits the caches of one model of transformers.

    Args:
        model: a decoder whose rotation `posenc.hf.read_rope` knows, with layers that do not rotate among its own if it
            has any. It is called once, on a text of one token, when keys are first to move.

    Raises:
        ValueError: for another model, for one whose layers do not rotate, and for one with attached encodings.
    """

    def __init__(self, model: nn.Module) -> None:
        if not isinstance(model, PreTrainedModel):
            raise ValueError(f"model must be a model of transformers, got {shown(model)}")
        config = model.config.to_dict()
        if is_posenc_config(config) or any(hasattr(module, NAME) for module in model.modules()):
            raise ValueError("model: its layers have encodings of posenc: edit its own caches (KVCache.keep)")
        self.model = model
        self.facts: ModelFacts = model_from_config(config)
        if not any(layer.rotation is not None for layer in self.facts.layers):
            raise ValueError(f"model: no layer of {type(model).__name__} rotates, or its layers are not known")

    def keep(self, cache: Cache, indices: ByLayer, **options: Unpack[EditOptions]) -> Tensor | list[Tensor | None]:
        """Forget all tokens but some: later calls are those under a mask that hides the others.

        Args:
            cache: a `DynamicCache` of this model, with or without layers of a window.
            indices: of tokens, each once: ``(count,)`` for all rows, ``(rows, count)`` row by row, or
                ``(rows, key heads, count)`` head by head; or a list with one a layer, None where a layer stays whole.
            options: see `EditOptions`.

        Returns:
            Positions of the tokens that stay, in the form of ``indices``: ``(rows | 1, count)``, one a head, or a list.

        Raises:
            ValueError: for indices that do not fit; for a layer whose cache no token can leave (recurrent states,
                chunks, indexers, quantised and static caches), or whose window has forgotten a token that stays; where
                keys are to move and cannot. The cache is then as it was.
        """
        return self._edit(cache, indices, dropped=False, **options)

    def drop(self, cache: Cache, indices: ByLayer, **options: Unpack[EditOptions]) -> Tensor | list[Tensor | None]:
        """Forget some tokens; the opposite of `keep`."""
        return self._edit(cache, indices, dropped=True, **options)

    @torch.no_grad()
    def join(self, cache: Cache, prefix: Cache, *, start: int | None = None) -> None:
        """Put the tokens of another cache before this one's, whose keys are rotated further.

        The prefix may have been read by itself, once for many texts: its one row serves all rows. It stays as it is.
        What the tokens of this cache read of each other stays as it was; they have not read the prefix.

        Args:
            cache, prefix: of this model.
            start: the position that this cache's position 0 comes to have; default: the number of tokens of the prefix,
                which must be given where tokens of the prefix were taken out and left gaps.

        Raises:
            ValueError: as `keep` where keys cannot move, and for caches that do not fit together.
        """
        own, before = self._layers(cache), {layer.number: layer for layer in self._layers(prefix)}
        if start is None:
            if hasattr(prefix, _GAPS):
                raise ValueError("start must be given: tokens of the prefix were taken out, and positions do not count")
            start = max((layer.tokens for layer in before.values()), default=0)
        check_whole("start", start, least=0)
        if {layer.number for layer in own} != set(before):
            raise ValueError("prefix must be a cache of the same model, and both must hold tokens")
        changes = []
        for layer in own:
            self._check_editable(layer)
            self._check_editable(before[layer.number])
            earlier, cached = before[layer.number].cached, layer.cached
            rows, first = cached.keys.shape[0], earlier.keys
            if type(earlier) is not type(cached) or first.shape[0] not in (1, rows):
                raise ValueError("prefix must be a cache of the same kind, of one row or as many as this one has")
            zero = torch.zeros(1, layer.held, dtype=torch.int64, device=cached.keys.device)
            parts = self._moved(layer, cached.keys, cached.values, zero, zero + start)
            if layer.held == layer.tokens:
                pairs = zip((earlier.keys, earlier.values), parts, strict=True)
                parts = [torch.cat([a.expand(rows, *a.shape[1:]).to(b.device), b], -2) for a, b in pairs]
            changes.append((layer, parts, layer.tokens + before[layer.number].tokens))
        _commit(changes)
        if hasattr(prefix, _GAPS):
            setattr(cache, _GAPS, True)

    @torch.no_grad()
    def _edit(
        self, cache: Cache, indices: ByLayer, *, dropped: bool, positions: ByLayer | None = None,
        attention_mask: Tensor | None = None, close_up: bool = False,
    ) -> Tensor | list[Tensor | None]:  # fmt: skip
        layers = self._layers(cache)
        if not layers:
            raise ValueError("the cache is empty: there is no token to keep or to drop")
        if positions is None and (attention_mask is not None or (close_up and hasattr(cache, _GAPS))):
            raise ValueError(
                "positions must be given for rows with padding and after an edit that left gaps: the position_ids of "
                "the tokens in the cache"
            )
        if isinstance(indices, Tensor) and len({layer.tokens for layer in layers if layer.tokens}) > 1:
            raise ValueError("indices must be a list with one a layer: layers hold different numbers of tokens")
        count = len(cache.layers)
        of_layer, places = _listed("indices", indices, count), _listed("positions", positions, count)
        found: list[Tensor | None] = [None] * count
        changes, kept = [], set()
        for layer in layers:
            chosen = of_layer[layer.number]
            if chosen is None:
                if close_up:
                    raise ValueError("close_up: all layers count positions together: give indices for each")
                continue
            self._check_editable(layer)
            keys = layer.cached.keys
            chosen = chosen.to(keys.device) if isinstance(chosen, Tensor) else chosen
            order = kept_order(chosen, layer.tokens, keys.shape[0], keys.shape[1], dropped=dropped)
            if not order.shape[-1]:
                raise ValueError("at least one token must stay")
            old = _taken_positions(places[layer.number], layer, order)
            here = _that_stay(layer, order, close_up=close_up)
            parts = [taken(keys, here, 2), taken(layer.cached.values, here, 2)]
            if close_up:
                new = _closed(order, attention_mask)
                tail = here.shape[-1]  # those that a window holds
                parts = self._moved(layer, parts[0], parts[1], old[..., -tail:], new[..., -tail:])
                old = new
            found[layer.number] = old
            kept.add(order.shape[-1])
            changes.append((layer, parts, order.shape[-1]))
        if close_up and len(kept) > 1:
            raise ValueError("close_up: as many tokens must stay in each layer, as positions count for all together")
        _commit(changes)
        if close_up:
            vars(cache).pop(_GAPS, None)
        else:
            setattr(cache, _GAPS, True)
        return next(p for p in found if p is not None) if isinstance(indices, Tensor) else found

    def _layers(self, cache: Cache) -> list[_Layer]:
        """The layers of a cache that hold something."""
        if not isinstance(cache, Cache) or isinstance(cache, EncoderDecoderCache):
            raise ValueError(f"cache must be a DynamicCache of transformers, got {shown(cache)}")
        if getattr(cache, "offloading", False):
            raise ValueError("cache: it moves layers to another device and back, which editing would meet halfway")
        layers = []
        for number, cached in enumerate(cache.layers):
            recurrent = isinstance(cached, LinearAttentionCacheLayerMixin)
            if number >= len(self.facts.layers) or not (recurrent or getattr(cached, "keys", None) is not None):
                continue  # layers that hold nothing, as those that read another layer's keys
            facts, dynamic = self.facts.layers[number], type(cached) in (DynamicLayer, DynamicSlidingWindowLayer)
            if dynamic and not cached.keys.numel():
                continue
            window = facts.window if facts.window is not None else getattr(cached, "sliding_window", None)
            layers.append(_Layer(number, cached, facts, cached.get_seq_length() if dynamic else 0, window))
        return layers

    def _check_editable(self, layer: _Layer) -> None:
        """A ValueError for a layer from which no token can be taken."""
        cached, facts = layer.cached, layer.facts
        if type(cached) not in (DynamicLayer, DynamicSlidingWindowLayer):
            raise layer.refuse(
                f"no token can be taken out of a {type(cached).__name__}: use a DynamicCache, and leave layers with a "
                "running state out (None in a list of indices)"
            )
        if facts.kind == CHUNKED or facts.not_read:
            raise layer.refuse(f"its attention counts keys: {facts.not_read or 'chunks of the text'}")
        of_cache = getattr(cached, "sliding_window", layer.window)
        if of_cache != layer.window:
            raise layer.refuse(f"its window is {layer.window}, that of its cache {of_cache}")
        if getattr(cached, "record_past", False) and layer.held >= cached.sliding_window:
            raise layer.refuse("it holds tokens beyond its window for assisted generation: edit after that")

    def _moved(self, layer: _Layer, keys: Tensor, values: Tensor, old: Tensor, new: Tensor) -> list[Tensor]:
        """Both tensors of a layer at other positions."""
        rotated = self._rotations[layer.number]
        if isinstance(rotated, str):
            raise layer.refuse(f"its keys cannot move: {rotated}")
        parts = {"keys": keys, "values": values}
        if rotated is not None:
            parts[rotated.part] = rotated.moved(parts[rotated.part], old, new)
        return list(parts.values())

    @cached_property
    def _rotations(self) -> list[_Rotated | str | None]:
        """What rotates in the cache of each layer; None: nothing; in words, why its keys cannot move."""
        weight = cast("nn.Embedding", self.model.get_input_embeddings()).weight
        top = min(max_length(self.facts.text) or _FARTHEST, _FARTHEST) - 1
        positions = sorted({0, 1, min(17, top), min(1000, top), top})
        tokens = [weight.shape[0] // 2, weight.shape[0] // 3]
        cache, training = DynamicCache(config=self.model.config), self.model.training
        ids = torch.tensor(tokens, device=weight.device).repeat_interleave(len(positions))[:, None]
        places = torch.tensor(positions, device=weight.device).repeat(len(tokens))[:, None]
        self.model.eval()
        try:
            with torch.no_grad():
                self.model(input_ids=ids, position_ids=places, past_key_values=cache, use_cache=True)
        finally:
            self.model.train(training)
        return [self._rotation(number, cached, positions) for number, cached in enumerate(cache.layers)]

    def _rotation(self, number: int, cached: Any, positions: list[int]) -> _Rotated | str | None:
        """What of one layer rotates, by the keys of a text of one token at several positions."""
        facts = self.facts.layers[number]
        if not isinstance(cached, DynamicLayer) or cached.keys is None:
            return "it keeps a running state"
        # (texts, positions, heads, 1, channels)
        parts = {name: getattr(cached, name).unflatten(0, (-1, len(positions))) for name in _PARTS}
        still = {name for name, part in parts.items() if _agree(part, part[:, :1], positions)}
        if facts.rotation is None:
            return None if len(still) == 2 else "they depend on positions, and do not rotate"
        if isinstance(facts.rotation, MRoPE):
            return "positions have several coordinates, in which tokens have no order"
        try:
            check_movable([facts.rotation], None)
        except ValueError as error:
            return str(error)
        for name in set(parts) - still:
            start, places = parts[name][:, :1], torch.tensor(positions, device=parts[name].device)
            for rotated in _candidates(name, facts, start.shape[-1]):
                # Positions in the place of tokens, (texts, heads, positions, channels).
                row = start[:, 0].expand(-1, -1, len(positions), -1)
                turned = rotated.moved(row, torch.zeros_like(places)[None], places[None])
                if len(still) == 1 and _agree(parts[name], turned.transpose(1, 2).unsqueeze(3), positions):
                    return rotated
        return "those of the model do not rotate as its configuration says"


def _candidates(part: str, facts: LayerFacts, width: int) -> list[_Rotated]:
    """The ways in which transformers lays rotated channels out: first or last, in one order of pairs or the other."""
    assert facts.spec is not None
    spec = text_rope(facts.spec)
    if spec.head_dim > width:
        return []
    found = []
    for layout in (spec.layout, "half" if spec.layout == "interleaved" else "interleaved"):
        rope = cast("RotaryEncoding", built(spec.replace(layout=layout)))
        encoding = rope if spec.head_dim == width else Leading(rope, spec.head_dim)
        found += [_Rotated(part, encoding, roll) for roll in {0, spec.rotary_dim % width}]
    return found


def _agree(found: Tensor, expected: Tensor, positions: list[int]) -> bool:
    """Whether keys at positions are what they should be, up to rounding of their dtype and of float32 angles."""
    if not bool(found.isfinite().all()):
        return False
    size = found.double().norm(dim=-1).amax()
    error = (found.double() - expected.double()).norm(dim=-1).amax((0, 2, 3))
    angles = torch.tensor(positions, device=error.device) * 2.0**-22
    return bool((error <= (4 * torch.finfo(found.dtype).eps + angles) * size).all())


def _listed(name: str, value: ByLayer | None, layers: int) -> list[Tensor | None]:
    """One for each layer."""
    if value is None or isinstance(value, Tensor):
        return [value] * layers
    if not isinstance(value, list | tuple) or len(value) != layers:
        raise ValueError(f"{name} must be a tensor, or a list with one (or None) for each of {layers} layers")
    return list(value)


def _taken_positions(positions: Tensor | None, layer: _Layer, order: Tensor) -> Tensor:
    """Old positions of the tokens that stay, ``(rows | 1, kept)`` or ``(rows | 1, heads, kept)``."""
    rows, heads = layer.cached.keys.shape[:2]
    if positions is None:
        return order[:, 0] if order.shape[1] == 1 else order
    shape = tuple(positions.shape)
    fits = shape[-1:] == (layer.tokens,) and shape[:-1] in ((), (1,), (rows,), (1, heads), (rows, heads))
    if not fits or positions.is_floating_point():
        raise ValueError(
            f"positions must be integers of {layer.tokens} tokens, (tokens,), (rows | 1, tokens) or one a key head, "
            f"got {positions.dtype} {shape}"
        )
    by_head = positions.to(order.device)
    by_head = by_head.view(1, 1, -1) if by_head.ndim == 1 else by_head.unsqueeze(1) if by_head.ndim == 2 else by_head
    both = (max(len(by_head), len(order)), max(by_head.shape[1], order.shape[1]))
    old = torch.take_along_dim(by_head.expand(*both, -1), order.expand(*both, -1), 2)
    return old[:, 0] if both[1] == 1 else old


def _closed(order: Tensor, attention_mask: Tensor | None) -> Tensor:
    """New positions of the tokens that stay, ``(rows | 1, kept)``."""
    if attention_mask is None:
        return torch.arange(order.shape[-1], device=order.device)[None]
    if order.shape[1] > 1:
        raise ValueError("indices per key head need rows without padding")
    rows = max(len(order), len(attention_mask))
    real = attention_mask.to(order.device).bool().expand(rows, -1).gather(1, order[:, 0].expand(rows, -1))
    return (real.cumsum(-1) - 1).clamp(min=0)


def _that_stay(layer: _Layer, order: Tensor, *, close_up: bool) -> Tensor:
    """Indices of what stays among the tokens that the layer holds: all, or the last ones of a window."""
    if layer.window is None:
        return order
    last = min(layer.window - 1, order.shape[-1])
    newest = order[..., order.shape[-1] - last :]
    if not close_up and bool((newest != torch.arange(layer.tokens - last, layer.tokens, device=order.device)).any()):
        raise layer.refuse(
            f"its window of {layer.window} counts keys, so that tokens can leave its middle only where the others "
            "close up: close_up=True, or None for this layer in a list of indices"
        )
    forgotten = layer.tokens - layer.held
    if bool((newest < forgotten).any()):
        raise layer.refuse(f"a token that stays in its window of {layer.window} is forgotten: edit the cache earlier")
    if isinstance(layer.cached, DynamicSlidingWindowLayer):
        return newest - forgotten
    return order


def _commit(changes: Sequence[tuple[_Layer, Sequence[Tensor], int]]) -> None:
    """Let each layer hold its new keys and values, of a text of so many tokens."""
    for layer, (keys, values), tokens in changes:
        cached = layer.cached
        if isinstance(cached, DynamicSlidingWindowLayer):
            cached.cumulative_length = tokens
            first = max(0, keys.shape[-2] - cached.sliding_window + 1)
            keys, values = (part[:, :, first:].contiguous() for part in (keys, values))
        cached.keys, cached.values = keys, values
