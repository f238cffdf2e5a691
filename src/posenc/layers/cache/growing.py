"""What one attention layer keeps between decoding steps: keys, values, positions, and what encodings remember."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from posenc.layers.cache.draft import Draft, draft
from posenc.layers.cache.editing import Editable
from posenc.layers.cache.padded import together
from posenc.layers.cache.tracks import (
    FEATURES,
    PADDING,
    POSITIONS,
    SEGMENTS,
    K,
    Kept,
    V,
    end_to_end,
    ends,
    length_of,
)


class KVCache(Editable):
    """Keys and values of the tokens seen so far, for one layer. A new cache is empty; `SelfAttention` fills it.

    It grows in place: a step writes its own tokens and copies no others, but for a doubling now and then. Keys are
    kept rotated, unless their rotation depends on more than their position (dynamic NTK, xPos): those turn anew in
    every call. Beside them lies whatever each encoding's ``remember`` gave (FoX: log gates), which nothing else could
    rebuild. Under a window, tokens that no later one can see are forgotten.

    Args:
        capacity: tokens to make room for at once, more than which are refused; None: as many as come, by doubling.
        window: tokens that a token sees, its own included, as the argument of the layer's call, which may be smaller.
        sinks: the first tokens of each row that all later ones go on to see beside their window.
        slack: newest tokens that `crop` may forget although a window has left others behind.

    >>> len(KVCache(window=64, sinks=4))
    0
    """

    def extended(
        self,
        k: Tensor,
        v: Tensor,
        features: Sequence[Tensor | None] = (),
        *,
        positions: Tensor | None = None,
        derived: bool = False,
        attention_mask: Tensor | None = None,
        segments: Tensor | None = None,
        rotated: bool = True,
        length: int | None = None,
        axes: int = 1,
        window: int | None = None,
        droppable: bool = True,
        in_place: bool = True,
    ) -> Draft:
        """All keys and values with those of one more call; the cache stays as it is until `take`.

        Args:
            k, v: of the new tokens, ``(batch, num_kv_heads, tokens, width)``.
            features: what encodings remember of them, one per encoding.
            positions: ``(*batch, tokens, ...)``; None: they count on.
            derived: whether positions follow from attention_mask and segments, rather than from a caller.
            attention_mask, segments: of the new tokens, ``(*batch, tokens)``.
            rotated: whether k is.
            length: the length that was declared for its rotation.
            axes: coordinates of a position.
            window: tokens that a token sees.
            droppable: whether tokens beyond the window count for nothing at all.
            in_place: False where a backward pass may follow.
        """
        past, tokens = len(self), k.shape[2]
        new: Kept = [k, v, positions, attention_mask, segments, *features]
        for track, of_axes in ((POSITIONS, axes), (PADDING, 1), (SEGMENTS, 1)):
            if new[track] is not None:
                new[track] = _rows(new[track], of_axes)
        self._check(new, rotated, length, axes)
        window = self._window_of(window, droppable, segments)
        in_place = in_place and not torch.compiler.is_compiling()
        if past and not (self.plain and positions is None and attention_mask is None):
            self._agree(new, k.device)
        if past:
            whole = self._tracks.write(new) if in_place else end_to_end(self._tracks.whole(), new)
        else:
            whole = new
            if in_place:
                self._tracks.check(tokens if window is None else min(tokens, self._keeps(window) + 1))
        given = self.given or (positions is not None and not derived)
        drops = droppable and window is not None
        return draft(
            self, whole, past, tokens, window=window, drops=drops, in_place=in_place, flags=(rotated, length, given)
        )  # fmt: skip

    def take(self, draft: Draft, last: tuple[Tensor, ...] = ()) -> None:
        """Keep what `extended` drafted, as the end of a call that went well.

        Args:
            draft: of this cache, with nothing else in between.
            last: what the layer needs of each row's newest token.

        Raises:
            ValueError: for a draft of another state of the cache.
        """
        if draft.source is not self or draft.version != self.version:
            raise ValueError("draft must be the newest one of this cache: something else has changed it since")
        if not draft.in_place:
            self._tracks.replace(draft.whole)
        elif draft.past:
            self._tracks.publish(draft.tokens)
        elif draft.drops and draft.window is not None and draft.attention_mask is None:
            kept = self._keeps(draft.window) - self.sinks
            self._tracks.refill(ends(draft.whole, self.sinks, kept + 1))  # the one more is dropped below
        else:
            self._tracks.refill(draft.whole)
        self.rotated, self.length, self.given = draft.flags
        self.seen, self.next, self.last = self.seen + draft.tokens, self.next + draft.tokens, last
        self.raw = None if self.raw is None else self.raw + draft.tokens
        self.version += 1
        if draft.drops and draft.window is not None:
            self._leave_behind(draft.window, draft.in_place)

    def _check(self, new: Kept, rotated: bool, length: int | None, axes: int) -> None:
        """Raise a ValueError where a call does not go on what the calls before it have left."""
        positions, held = new[POSITIONS], self._tracks.held
        self.check_positions(positions)
        if not len(self):
            held = []
        if axes > 1 and (positions is None or (held and held[POSITIONS] is None)):
            raise ValueError(f"positions must be given in every call that shares this cache: they have {axes} axes")
        if not held:
            return
        if (held[SEGMENTS] is None) != (new[SEGMENTS] is None):
            raise ValueError("segments must be given in every call that shares a cache, or in none")
        if self.rotated != rotated or self.length != length:
            raise ValueError(
                f"length must be the same in all calls that share a cache: {self.length} before, now {length}"
            )
        for name, old, now in (("k", held[K], new[K]), ("v", held[V], new[V])):
            if old is not None and now is not None:
                _check_same(name, old, now)
        same = len(held) == len(new)
        for old, now in zip(held[FEATURES:], new[FEATURES:], strict=False):
            same = same and (old is None) == (now is None)
        if not same:
            raise ValueError("cache must be one that this layer filled: it holds what other encodings remember")

    def _window_of(self, window: int | None, droppable: bool, segments: Tensor | None) -> int | None:
        """The window of a call: its own, else the cache's."""
        if window is not None and self.window is not None and window > self.window:
            raise ValueError(f"window must be at most the cache's {self.window}, got {window}")
        found = self.window if window is None else window
        if self.reach is not None and (found is None or found > self.reach):
            raise ValueError(
                f"window must be at most {self.reach}, as in the calls before: older tokens are forgotten, got {found}"
            )
        if self.sinks and found is not None and (segments is not None or not droppable):
            what = "segments: each document has a start of its own" if droppable else "this layer's encodings or order"
            raise ValueError(f"sinks cannot serve beside {what}")
        return found

    def _agree(self, new: Kept, device: torch.device) -> None:
        """Bring what is held and what comes to the same kinds, rows and precision."""
        past, tokens = len(self), length_of(new)
        for track in (POSITIONS, PADDING, SEGMENTS):
            part, old = new[track], self._tracks.live(track)
            if part is None and old is None:
                continue
            if part is None:
                one = torch.ones(1, tokens, dtype=torch.bool, device=device)
                counted = torch.arange(self.next, self.next + tokens, device=device)
                part = new[track] = one if track == PADDING else counted[None]
            if old is None:
                one = torch.ones(1, past, dtype=torch.bool, device=device)
                old = one if track == PADDING else self.counted(device)[None]
            elif part.shape[0] <= old.shape[0] and torch.promote_types(part.dtype, old.dtype) == old.dtype:
                continue
            rows = max(part.shape[0], old.shape[0])
            wide = old.to(torch.promote_types(part.dtype, old.dtype))
            self._tracks.begin(track, wide.expand(rows, *wide.shape[1:]))

    def _keeps(self, window: int) -> int:
        """Tokens that must stay under a window, sinks and slack included."""
        return self.sinks + max(window - 1, 1) + self.slack

    def _leave_behind(self, window: int, in_place: bool) -> None:
        """Forget what no later token can see."""
        kept = self._keeps(window)
        if self.attention_mask is not None:
            if len(self) > 2 * kept:  # now and then: rows are put together one by one
                rows = together(self._tracks.whole(), kept - self.sinks - self.slack, self.sinks, self.slack)
                (self._tracks.refill if in_place else self._tracks.replace)(rows)
                self.apart, self.raw, self.reach = self.sinks, self.slack, window
        elif len(self) > kept:
            self._tracks.drop(self.sinks, kept - self.sinks, in_place)
            self.apart, self.reach = self.sinks, window


def _rows(x: Tensor | None, axes: int = 1) -> Tensor | None:
    """``(tokens, ...)`` or ``(batch, tokens, ...)`` as ``(batch | 1, tokens, ...)``."""
    return x if x is None or x.ndim == (2 if axes == 1 else 3) else x[None]


def _check_same(name: str, old: Tensor, now: Tensor) -> None:
    """Raise a ValueError unless tokens of one kind go on from those before them."""
    before, here = old.shape, now.shape
    if before[0] != here[0]:
        raise ValueError(f"batch must be {before[0]} as in the calls before, got {here[0]}")
    if before[1] != here[1] or before[3] != here[3] or old.dtype != now.dtype:
        raise ValueError(
            f"cache must be one that this layer filled in the same precision: {name} was {old.dtype} "
            f"{tuple(before)}, now {now.dtype} {tuple(here)}"
        )
