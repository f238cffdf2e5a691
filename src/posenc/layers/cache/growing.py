"""What one attention layer keeps between decoding steps: keys, values, positions, and what encodings remember."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from posenc.encoding import Encoding
from posenc.layers.cache.draft import Draft, draft
from posenc.layers.cache.moving import check_movable, rerotate
from posenc.layers.cache.padded import together
from posenc.layers.cache.tracks import (
    FEATURES,
    PADDING,
    POSITIONS,
    SEGMENTS,
    K,
    Kept,
    Tracks,
    V,
    end_to_end,
    ends,
    length_of,
)
from posenc.positions import nowhere


class KVCache:
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

    def __init__(
        self, *, capacity: int | None = None, window: int | None = None, sinks: int = 0, slack: int = 0
    ) -> None:
        for name, given, least in (("capacity", capacity, 1), ("window", window, 1), ("sinks", sinks, 0),
                                   ("slack", slack, 0)):  # fmt: skip
            if given is None and name in ("capacity", "window"):
                continue
            if isinstance(given, bool) or not isinstance(given, int) or given < least:
                raise ValueError(f"{name} must be an integer of at least {least}, in tokens, got {given!r}")
        self.window, self.sinks, self.slack = window, sinks, slack
        self._tracks = Tracks(capacity)
        self._forget()

    def _forget(self) -> None:
        """Everything that is known of a text."""
        self._tracks.start = self._tracks.stop = 0
        self.rotated = True  # whether k is
        self.length: int | None = None  # the length that was declared for their rotation
        self.last: tuple[Tensor, ...] = ()  # what the layer itself needs of each row's newest token (FoXPro)
        self.seen = 0  # tokens that came, padding and forgotten ones included
        self.next = 0  # position of the next token, where positions count
        self.given = False  # whether a caller gave positions
        self.apart = 0  # sinks whose neighbours are gone
        self.reach: int | None = None  # window by which tokens were forgotten
        self.raw: int | None = None  # newest tokens that lie as they came; None: all
        self.version = 0  # drafts of another version are refused

    def __len__(self) -> int:
        """Tokens kept, padding included."""
        return len(self._tracks)

    @property
    def k(self) -> Tensor | None:
        """``(batch, kv_heads, tokens, head_dim)``, a view; None while empty."""
        return self._tracks.live(K) if len(self) else None

    @property
    def v(self) -> Tensor | None:
        """``(batch, kv_heads, tokens, value_dim)``, a view; None while empty."""
        return self._tracks.live(V) if len(self) else None

    @property
    def positions(self) -> Tensor | None:
        """``(batch | 1, tokens, ...)``; None: counted."""
        return self._tracks.live(POSITIONS) if len(self) else None

    @property
    def padding(self) -> Tensor | None:
        """``(batch | 1, tokens)`` bool, True at real tokens; None: all are."""
        return self._tracks.live(PADDING) if len(self) else None

    @property
    def segments(self) -> Tensor | None:
        """``(batch | 1, tokens)``; None: one document a row."""
        return self._tracks.live(SEGMENTS) if len(self) else None

    @property
    def features(self) -> list[Tensor | None]:
        """What each encoding remembers, ``(batch, heads, tokens, ...)`` or None; one per encoding."""
        return [self._tracks.live(track) for track in range(FEATURES, len(self._tracks.held))] if len(self) else []

    def counted(self, device: torch.device) -> Tensor:
        """Positions of the kept tokens where they count, ``(tokens,)``."""
        if not self.apart:
            return torch.arange(self.next - len(self), self.next, device=device)
        index = torch.arange(len(self), device=device)
        return torch.where(index < self.apart, index, index + (self.next - len(self)))

    def extended(
        self,
        k: Tensor,
        v: Tensor,
        features: Sequence[Tensor | None] = (),
        *,
        positions: Tensor | None = None,
        derived: bool = False,
        padding: Tensor | None = None,
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
            k, v: of the new tokens, ``(batch, kv_heads, tokens, width)``.
            features: what encodings remember of them, one per encoding.
            positions: ``(*batch, tokens, ...)``; None: they count on.
            derived: whether positions follow from padding and segments, rather than from a caller.
            padding, segments: of the new tokens, ``(*batch, tokens)``.
            rotated: whether k is.
            length: the length that was declared for its rotation.
            axes: coordinates of a position.
            window: tokens that a token sees.
            droppable: whether tokens beyond the window count for nothing at all.
            in_place: False where a backward pass may follow.
        """
        past, tokens = len(self), k.shape[2]
        new: Kept = [k, v, _rows(positions, axes), _rows(padding), _rows(segments), *features]
        self._check(k, v, new, rotated, length, axes)
        window = self._window_of(window, droppable, segments)
        in_place = in_place and not torch.compiler.is_compiling()
        if past:
            self._agree(new, k.device)
        if past and in_place:
            self._tracks.write(new)
            whole = self._tracks.whole(tokens)
        else:
            whole = end_to_end(self._tracks.whole(), new) if past else new
        if not past and in_place:
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
        elif draft.drops and draft.window is not None and draft.padding is None:
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

    def crop(self, tokens: int) -> None:
        """Forget the last tokens, as after a draft that was refused.

        Raises:
            ValueError: for more than are kept, for more than ``slack`` once a window has left tokens behind, and in
                caches of layers that keep more of the newest token than of others (FoXPro).
        """
        if isinstance(tokens, bool) or not isinstance(tokens, int) or not 0 <= tokens <= len(self):
            raise ValueError(f"tokens must be an integer from 0 to the {len(self)} that are kept, got {tokens!r}")
        if tokens == self.seen:
            self.clear()
        if tokens == 0 or not len(self):
            return
        if self.last:
            raise ValueError("tokens: this layer (FoXPro) keeps more of the newest token than of those before it")
        left = len(self) - self.apart - tokens
        if self.reach is not None and (left < self.reach - 1 or (self.raw is not None and tokens > self.raw)):
            raise ValueError(
                f"tokens: {tokens} are too many after a window of {self.reach} has left others behind: "
                f"give the cache slack={tokens}"
            )
        self._tracks.stop -= tokens
        self.seen, self.next, self.version = self.seen - tokens, self.next - tokens, self.version + 1
        self.raw = None if self.raw is None else self.raw - tokens

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row ``rows[i]`` was, as beams need it: `select` by another name."""
        self.select(rows)

    def select(self, rows: Tensor) -> None:
        """Keep these rows, ``(rows,)`` indices or ``(batch,)`` bool, in this order."""
        if not isinstance(rows, Tensor) or rows.ndim != 1 or rows.is_floating_point():
            raise ValueError(f"rows must be a tensor of indices (rows,) or of bool (batch,), got {rows!r}")
        found = rows.nonzero().flatten() if rows.dtype == torch.bool else rows
        self._change_rows(lambda t: t.index_select(0, found.to(t.device)))

    def repeat(self, times: int) -> None:
        """Every row ``times`` times, one after the other."""
        if isinstance(times, bool) or not isinstance(times, int) or times < 1:
            raise ValueError(f"times must be an integer of at least 1, got {times!r}")
        self._change_rows(lambda t: t.repeat_interleave(times, 0))

    def shift(self, by: int, encodings: Sequence[Encoding] = ()) -> None:
        """Move the kept tokens, sinks apart, by so many positions; the tokens to come follow them.

        Keys that lie rotated turn along, exactly. ``shift(-cache.gap, encodings)`` closes the gap that dropped tokens
        have left, so that positions end at the number of tokens kept, as StreamingLLM has them.

        Args:
            by: tokens, negative toward the start.
            encodings: all of the layer's.

        Raises:
            ValueError: for encodings whose keys cannot move (see `rerotate`), embeddings among them; where counted
                tokens would meet the sinks or the start; for sinks in rows with padding.
        """
        if isinstance(by, bool) or not isinstance(by, int):
            raise ValueError(f"by must be an integer, in tokens, got {by!r}")
        positions, k = self.positions, self.k
        if positions is None and self.gap + by < 0:
            raise ValueError(f"by must be at least {-self.gap}, or tokens would come before those that stay, got {by}")
        if self.apart and self.padding is not None:
            raise ValueError("by: rows with padding and sinks have gaps of different sizes; clear the cache instead")
        check_movable(encodings, self.length, rotated=self.rotated)
        if k is None:
            return
        first, axes = self.apart, 1 if positions is None or positions.ndim == 2 else positions.shape[-1]
        moved = torch.full((len(self) - first,), by, device=k.device)
        if axes > 1:
            moved = moved.unsqueeze(-1).expand(-1, axes)
        if positions is not None:
            old = positions[:, first:]
            moved = torch.where(nowhere(old, axes).view(*old.shape[:2], *([1] * (axes > 1))), 0, moved)
            self._tracks.put(POSITIONS, first, old + moved)
        if self.rotated:
            self._tracks.put(K, first, rerotate(k[:, :, first:], encodings, moved, length=self.length))
        self.next, self.version = self.next + by, self.version + 1

    @property
    def gap(self) -> int:
        """Positions between the sinks, or the start, and the oldest other token kept, where positions count."""
        return self.next - len(self)

    def clear(self) -> None:
        """Forget everything; what `capacity` has made room for stays."""
        version = self.version
        if self._tracks.capacity is None:
            self._tracks.held, self._tracks.room = [], 0
        self._forget()
        self.version = version + 1

    def __copy__(self) -> KVCache:
        """A cache that goes on by itself: whichever of the two grows first copies what both have."""
        made = KVCache.__new__(KVCache)
        vars(made).update(vars(self))
        made._tracks = copy.copy(self._tracks)
        made._tracks.held = list(self._tracks.held)
        self._tracks.shared = made._tracks.shared = True
        return made

    def check_positions(self, positions: Tensor | None) -> None:
        """Raise a ValueError where a caller who gave positions gives none any more."""
        if positions is None and self.given and len(self):
            raise ValueError("positions must be given, as they were in an earlier call that shares this cache")

    def _change_rows(self, change: Callable[[Tensor], Tensor]) -> None:
        self._tracks.change_rows(change)
        self.last = tuple(change(t) for t in self.last)
        self.version += 1

    def _check(self, k: Tensor, v: Tensor, new: Kept, rotated: bool, length: int | None, axes: int) -> None:
        """Raise a ValueError where a call does not go on what the calls before it have left."""
        self.check_positions(new[POSITIONS])
        held = self._tracks.held if len(self) else []
        if axes > 1 and (new[POSITIONS] is None or (held and held[POSITIONS] is None)):
            raise ValueError(f"positions must be given in every call that shares this cache: they have {axes} axes")
        if not held:
            return
        if (held[SEGMENTS] is None) != (new[SEGMENTS] is None):
            raise ValueError("segments must be given in every call that shares a cache, or in none")
        if (self.rotated, self.length) != (rotated, length):
            raise ValueError(
                f"length must be the same in all calls that share a cache: {self.length} before, now {length}"
            )
        for name, old, now in (("k", held[K], k), ("v", held[V], v)):
            if old is None or (old.shape[:2], old.shape[3], old.dtype) == (now.shape[:2], now.shape[3], now.dtype):
                continue
            if old.shape[0] != now.shape[0]:
                raise ValueError(f"batch must be {old.shape[0]} as in the calls before, got {now.shape[0]}")
            raise ValueError(
                f"cache must be one that this layer filled in the same precision: {name} was {old.dtype} "
                f"{tuple(old.shape)}, now {now.dtype} {tuple(now.shape)}"
            )
        if len(held) != len(new):
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
        if self.padding is not None:
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
