"""The new tokens of a layer's call and those that its cache keeps, as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from torch import Tensor, nn

from posenc.backends.inputs.validation import Causal
from posenc.encoding import Encoding, ScoreEncoding, WeightEncoding
from posenc.layers.cache import KVCache, StaticKVCache
from posenc.layers.cache.draft import Draft
from posenc.layers.cache.static import Slots
from posenc.layers.sight import Sight, alone, among_slots, beside, window_is_all
from posenc.tracing import exporting


class New(NamedTuple):
    """What a call brings."""

    k: Tensor  # (batch, num_kv_heads, tokens, head_dim)
    v: Tensor
    features: list[Tensor | None]  # one per encoding
    here: Tensor | None  # positions; None: nobody reads any
    given: bool  # whether by a caller
    derived: bool  # whether rows have positions of their own, by padding or documents
    attention_mask: Tensor | None
    segments: Tensor | None
    mask: Tensor | None
    window: int | None
    length: int | None
    rotated: bool  # whether k is
    axes: int


class Seen(NamedTuple):
    """What its queries look at."""

    k: Tensor  # (batch, num_kv_heads, keys, head_dim)
    v: Tensor
    features: list[Tensor | None]
    segments: Tensor | None
    mask: Tensor | None
    sight: Sight
    cache: KVCache | StaticKVCache | None = None
    pending: Draft | Slots | None = None  # what the cache will keep

    def keep(self, last: tuple[Tensor, ...]) -> None:
        """Let the cache have the new tokens; ``last`` is what the layer needs of each row's newest one."""
        if isinstance(self.cache, KVCache) and isinstance(self.pending, Draft):
            self.cache.take(self.pending, last)
        elif isinstance(self.cache, StaticKVCache) and isinstance(self.pending, Slots):
            self.cache.take(self.pending)


def together(
    new: New, cache: KVCache | StaticKVCache | None, acting: Sequence[Encoding], causal: Causal, *, learns: bool
) -> Seen:
    """All that a call looks at; the cache stays as it is until `Seen.keep`.

    Args:
        new: what the call brings.
        cache: what is there; None: nothing.
        acting: the layer's encodings inside attention.
        causal: as in `attention`.
        learns: whether a backward pass may follow.
    """
    if cache is None:
        sight = alone(new.here, new.given, new.attention_mask, new.k.shape[2], new.window)
        return Seen(new.k, new.v, new.features, new.segments, new.mask, sight)
    if isinstance(cache, StaticKVCache):
        _check_static(new, cache, learns)
        in_order = new.k.shape[2] > 1 or any(isinstance(e, ScoreEncoding | WeightEncoding) for e in acting)
        slots = cache.extended(
            new.k, new.v, new.features, positions=new.here, attention_mask=new.attention_mask, in_order=in_order
        )  # fmt: skip
        return Seen(slots.k, slots.v, slots.features, None, None, among_slots(new.here, slots), cache, slots)
    narrows = new.window is not None or cache.window is not None
    draft = cache.extended(
        new.k, new.v, new.features,
        positions=new.here if new.derived or new.given else None,
        derived=new.derived, attention_mask=new.attention_mask, segments=new.segments, rotated=new.rotated,
        length=new.length, axes=new.axes, window=new.window,
        droppable=narrows and window_is_all(acting, causal, new.given or cache.given),
        in_place=not learns,
    )  # fmt: skip
    mask = draft.columns(new.mask) if isinstance(new.mask, Tensor) else new.mask  # what is none is refused later
    return Seen(draft.k, draft.v, draft.features, draft.segments, mask, beside(new.here, draft), cache, draft)


def _check_static(new: New, cache: StaticKVCache, learns: bool) -> None:
    """Raise a ValueError for what a cache of fixed size does not serve."""
    for name, given in (("mask", new.mask), ("segments", new.segments)):
        if given is not None:
            raise ValueError(f"{name} cannot serve with a static cache: pass attention_mask, or use a KVCache")
    if new.window is not None and new.window != cache.window:
        raise ValueError(f"window must be the static cache's {cache.window}, got {new.window}")
    if (new.rotated, new.length) != (cache.rotated, cache.length):
        raise ValueError(
            f"length must be the one that the static cache was made for, {cache.length}, and tables those that it "
            f"leaves the layer to make; got length {new.length}"
        )
    if learns and not exporting():
        raise ValueError("cache: no gradient flows through a static cache: use torch.no_grad(), or a KVCache")


def may_learn(modules: Iterable[nn.Module], x: Tensor) -> bool:
    """Whether a backward pass may follow a call; encodings that a layer borrows are not among its own modules."""
    return x.requires_grad or any(p.requires_grad for module in modules for p in module.parameters())
