"""`KVCache`: what one attention layer keeps between calls: keys, values, positions and token states.

A call goes in two steps, so that a failing call leaves the cache as it was: ``_extended`` returns the keys to attend to
(cached and new), and ``_take`` keeps them once attention has run.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch import Tensor

from posenc.arguments import LONGEST, check_whole
from posenc.encoding import Encoding
from posenc.layers.cache.editing import CachedTokens, EditedTokens, edited, joined
from posenc.layers.cache.keys import GrowingStep, Keys, NewTokens, columns, count_with_gap, window_bounds
from posenc.layers.cache.padding import compacted, within
from posenc.layers.cache.rerotation import check_movable, rerotate
from posenc.layers.cache.token_buffers import (
    PADDING,
    POSITIONS,
    SEGMENTS,
    TOKEN_STATES,
    Guard,
    K,
    TokenBuffers,
    TokenData,
    V,
    concatenated,
    first_and_last,
    num_tokens,
    token_axis,
)
from posenc.positions.checking import has_no_position
from posenc.tracing import tracing
from posenc.validate import Causal


class KVCache:
    """Keys and values of the tokens so far, for one layer. A new cache is empty; `SelfAttention` fills it.

    It grows in place: a step writes its own tokens and copies no others, except when the memory doubles. Keys are
    cached rotated, unless their rotation depends on more than their position (dynamic NTK, xPos): those are rotated
    again in every call. The cache also keeps what each encoding's ``token_state`` gave (FoX: log gates), which nothing
    else could rebuild. Under a window, tokens that no later one can attend to are forgotten.

    Args:
        capacity: tokens to make room for at once, more than which are refused; None: as many as come, by doubling.
        window: tokens that a token attends to, its own included; a layer's call may pass a smaller one.
        sinks: the first tokens of each row, which stay visible to all later ones in addition to their window.
        slack: newest tokens that `crop` may forget although a window has left others behind.

    >>> len(KVCache(window=64, sinks=4))
    0
    """

    def __init__(
        self, *, capacity: int | None = None, window: int | None = None, sinks: int = 0, slack: int = 0
    ) -> None:
        for name, value, least in (("capacity", capacity, 1), ("window", window, 1), ("sinks", sinks, 0),
                                   ("slack", slack, 0)):  # fmt: skip
            if value is None and name in ("capacity", "window"):
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}, in tokens, got {value!r}")
        self.window, self.sinks, self.slack = window, sinks, slack
        self._buffers = TokenBuffers(capacity)
        self._guard = self._buffers.guard
        self._forget()

    def _forget(self) -> None:
        """Reset everything that is known of the tokens so far."""
        self._buffers.start = self._buffers.stop = 0
        self.rotated = True  # whether k is
        self.length: int | None = None  # the length that was declared for k's rotation
        self.last: tuple[Tensor, ...] = ()  # what the layer itself needs of each row's newest token (FoXPro)
        self.seen = 0  # tokens that came, padding and forgotten ones included
        self.next = 0  # position of the next token, where positions count
        self.positions_from_caller = False  # whether a caller gave positions
        self.detached_sinks = 0  # sinks whose neighbours are gone
        self.dropped_window: int | None = None  # window by which tokens were forgotten
        self.uncompacted: int | None = None  # newest tokens that no compaction of rows has moved; None: all
        self.edited = False  # whether tokens between others are gone, so that positions have gaps
        self.heads_differ = False  # whether key heads hold different tokens, so that positions are nowhere
        self.resume: Tensor | None = None  # next position of each row, where that does not follow from the newest token
        self.version = 0  # pending keys of another version are refused

    def __len__(self) -> int:
        """Tokens kept, padding included."""
        return self._buffers.stop - self._buffers.start

    @property
    def k(self) -> Tensor | None:
        """``(batch, num_kv_heads, tokens, head_dim)``, a view; None while empty."""
        return self._buffers.live(K) if len(self) else None

    @property
    def v(self) -> Tensor | None:
        """``(batch, num_kv_heads, tokens, value_dim)``, a view; None while empty."""
        return self._buffers.live(V) if len(self) else None

    @property
    def positions(self) -> Tensor | None:
        """``(batch | 1, tokens, ...)``; None: counted."""
        return self._buffers.live(POSITIONS) if len(self) else None

    @property
    def attention_mask(self) -> Tensor | None:
        """``(batch | 1, tokens)`` bool, True at real tokens; None: all are."""
        return self._buffers.live(PADDING) if len(self) else None

    @property
    def segments(self) -> Tensor | None:
        """``(batch | 1, tokens)``; None: one document a row."""
        return self._buffers.live(SEGMENTS) if len(self) else None

    @property
    def token_states(self) -> list[Tensor | None]:
        """what each encoding keeps, ``(batch, heads, tokens, ...)`` or None; one per encoding."""
        return [self._buffers.live(kind) for kind in range(TOKEN_STATES, len(self._buffers.held))] if len(self) else []

    @property
    def _counted_only(self) -> bool:
        """Whether positions count, and there is neither padding nor any document."""
        buffers = self._buffers
        held = buffers.held
        if buffers.stop == buffers.start:
            return True
        return held[POSITIONS] is None and held[PADDING] is None and held[SEGMENTS] is None

    def _counted(self, device: torch.device) -> Tensor:
        """Positions of the kept tokens where they count, ``(tokens,)``."""
        return count_with_gap(self.next, len(self), self.detached_sinks, device)

    @property
    def gap(self) -> int:
        """Positions between the sinks, or the start, and the oldest other token kept, where positions count."""
        return self.next - len(self)

    def _extended(
        self, new: NewTokens, encodings: Sequence[Encoding] = (), causal: Causal = True, *, learns: bool = False
    ) -> Keys:
        """All keys and values, the new call's included; the cache stays as it is until `_take`.

        Args:
            new: what the call projected from its input.
            encodings: the layer's inside attention.
            causal: as in `attention`.
            learns: whether a backward pass may follow.
        """
        if self._guard.torn:
            self._guard.check()
        buffers, tokens = self._buffers, new.k.shape[2]
        past = buffers.stop - buffers.start
        explicit = new.positions_from_caller or new.per_row_positions  # else positions count
        positions = new.positions if explicit else None
        from_caller = self.positions_from_caller or (positions is not None and not new.per_row_positions)
        added: TokenData = [new.k, new.v, positions, new.attention_mask, new.segments, *new.token_states]
        for kind, axes in ((POSITIONS, new.axes), (PADDING, 1), (SEGMENTS, 1)):
            if added[kind] is not None:
                added[kind] = _rows(added[kind], axes)
        self._check(added, new.rotated, new.length, new.axes)
        window, droppable = self.window, True
        if new.window is not None or window is not None or self.dropped_window is not None:
            if self.edited:
                raise ValueError("window: tokens were taken out of this cache, so that indices tell no distances")
            droppable = window_bounds(encodings, causal, new.positions_from_caller or self.positions_from_caller)
            window = self._window_of(new.window, droppable, new.segments)
        # Autograd may have saved views of what is held, and a compiler would trace the memory as an input.
        in_place = not learns and not torch.compiler.is_compiling()
        if past and not (positions is None and new.attention_mask is None and self._counted_only):
            self._align(added, new.k.device)
        if past:
            all_tokens = buffers.write(tokens, added) if in_place else concatenated(buffers.all_live(), added)
        else:
            all_tokens = added
            if in_place:
                buffers.check(tokens if window is None else min(tokens, self._tokens_to_keep(window) + 1))
        step = GrowingStep(
            self, self.version, all_tokens, past, tokens, window, droppable and window is not None, in_place,
            new.rotated, new.length, from_caller, self.next + tokens, self.detached_sinks, self.edited,
        )  # fmt: skip
        return self._narrowed(step, new.mask)

    def _narrowed(self, step: GrowingStep, mask: Tensor | None) -> Keys:
        """The keys that a query of the call may attend to, and which of them are still hidden from some.

        A window hides keys in one of three ways, each the cheapest that is exact. Without padding and sinks the newest
        ``window − 1 + tokens`` keys are all that any query sees, a view of the end; among them the window of indices
        remains to be applied, unless there is one query. Rows with padding count real tokens, which a mask says
        (`padding.within`). So do sinks, which lie before a gap.
        """
        all_tokens, window, tokens = step.all_tokens, step.window, step.tokens
        keys, sinks, padding = step.past + tokens, self.sinks, all_tokens[PADDING]
        first, remaining, visible = 0, window, None
        if window is None or (keys <= window and self.seen == step.past):  # nothing has been forgotten, nor is hidden
            remaining = None
        elif padding is not None and step.drops:
            remaining, visible = None, within(padding, tokens, window, sinks)
        elif step.drops and not sinks:
            first = max(0, keys - (window - 1 + tokens))
            remaining = None if tokens == 1 or keys <= window else window
        elif sinks:
            remaining = None
            if tokens > 1 or keys - sinks > window:
                visible = self._sinks_and_window(step, window)
        some = all_tokens
        if first:
            some = [
                None if t is None else t.narrow(token_axis(i), first, keys - first) for i, t in enumerate(all_tokens)
            ]
        k, v, positions, padding, segments, *token_states = some
        assert k is not None, "tokens have keys"
        assert v is not None, "tokens have values"
        if mask is not None:
            mask = columns(mask, step, keys - first, self.seen, self.uncompacted)
        return Keys(
            k, v, token_states, positions, step.positions_from_caller, padding, segments, mask, visible, remaining, step
        )

    def _sinks_and_window(self, step: GrowingStep, window: int) -> Tensor:
        """Keys among the first tokens or in the window, ``(1, 1, queries, keys)``, by their number in the sequence."""
        k, keys, end = step.all_tokens[K], step.past + step.tokens, self.seen + step.tokens
        device = None if k is None else k.device
        index = torch.arange(keys, device=device)
        # Behind the sinks lies a gap: all other keys are the newest ones.
        number = torch.where(index < self.detached_sinks, index, index + (end - keys))
        own_number = torch.arange(end - step.tokens, end, device=device)[:, None]
        return ((number < self.sinks) | ((own_number - number).abs() < window))[None, None]

    def _take(self, keys: Keys, last: tuple[Tensor, ...] = ()) -> None:
        """Keep what `_extended` returned, at the end of a call that went well.

        Args:
            keys: of this cache, with no other change in between.
            last: what the layer needs of each row's newest token.

        Raises:
            ValueError: for keys of another state of the cache.
        """
        step, buffers = keys.step, self._buffers
        if not isinstance(step, GrowingStep) or step.cache is not self or step.version != self.version:
            raise ValueError("keys must be the newest of this cache: another call has changed the cache since")
        if self._guard.torn:
            self._guard.check()
        self._guard.torn = not tracing()  # until the end of what cannot be undone; no compiled graph is interrupted
        if not step.in_place:
            buffers.replace(step.all_tokens)
        elif step.past:
            buffers.stop += step.tokens
        elif step.drops and step.window is not None and step.all_tokens[PADDING] is None:
            newest = self._tokens_to_keep(step.window) - self.sinks
            # One token more than stays: `_drop_old` below forgets it and records the window.
            buffers.refill(first_and_last(step.all_tokens, self.sinks, newest + 1))
        else:
            buffers.refill(step.all_tokens)
        self.rotated, self.length, self.last = step.rotated, step.length, last
        self.positions_from_caller = step.positions_from_caller
        self.seen, self.next = self.seen + step.tokens, step.end
        self.resume = None
        if self.uncompacted is not None:
            self.uncompacted += step.tokens
        self.version += 1
        if step.drops and step.window is not None:
            self._drop_old(step.window, step.in_place)
        self._guard.torn = False

    def crop(self, tokens: int) -> None:
        """Forget the last tokens, as after a draft that was refused.

        Raises:
            ValueError: for more than are kept, for more than ``slack`` once a window has left tokens behind, and in
                caches of layers that keep more of the newest token than of others (FoXPro).
        """
        self._guard.check()
        if isinstance(tokens, bool) or not isinstance(tokens, int) or not 0 <= tokens <= len(self):
            raise ValueError(f"tokens must be an integer from 0 to the {len(self)} that are kept, got {tokens!r}")
        if tokens == self.seen:
            self.clear()
        if tokens == 0 or not len(self):
            return
        if self.last:
            raise ValueError("tokens: this layer (FoXPro) keeps more of the newest token than of those before it")
        if self.edited and tokens > (self.uncompacted or 0):
            raise ValueError(
                f"tokens: only the {self.uncompacted or 0} that came since tokens were taken out can be cropped; drop "
                "names others by their indices"
            )
        left = len(self) - self.detached_sinks - tokens
        moved = self.uncompacted is not None and tokens > self.uncompacted
        if self.dropped_window is not None and (left < self.dropped_window - 1 or moved):
            raise ValueError(
                f"tokens: {tokens} are too many after a window of {self.dropped_window} has left others behind: "
                f"give the cache slack={tokens}"
            )
        with self._guard.changing():
            self._buffers.stop -= tokens
            self.seen, self.next, self.version = self.seen - tokens, self.next - tokens, self.version + 1
            self.uncompacted = None if self.uncompacted is None else self.uncompacted - tokens

    def keep(self, indices: Tensor, encodings: Sequence[Encoding], *, close_up: bool = False) -> None:
        """Forget all tokens but some: later calls are those under a mask that hides the others.

        Only the tokens that stay take memory. A later ``mask`` covers the keys that are kept.

        Args:
            indices: of tokens in the cache, 0 … len − 1, each once: ``(count,)`` for all rows, ``(batch, count)`` row
                by row, or ``(batch, num_kv_heads, count)`` head by head, where all encodings are rotations.
            encodings: all of the layer's; `SelfAttention.keep` passes them.
            close_up: whether the tokens that stay move together, to positions 0 … count − 1, and keys are rotated
                accordingly; later calls are then those after a text of these tokens alone. Else they stay where they
                are, and the next token follows the newest that came.

        Raises:
            ValueError: for indices that do not fit; under a window, which forgets tokens by itself; for encodings that
                read the neighbours of tokens (PaTH), or that cannot be turned on where positions are closed up.
        """
        self._edit(indices, encodings, close_up, dropped=False)

    def drop(self, indices: Tensor, encodings: Sequence[Encoding], *, close_up: bool = False) -> None:
        """Forget some tokens; the opposite of `keep`."""
        self._edit(indices, encodings, close_up, dropped=True)

    def _edit(self, indices: Tensor, encodings: Sequence[Encoding], close_up: bool, *, dropped: bool) -> None:
        self._guard.check()
        if self.k is None:
            raise ValueError("the cache is empty: there is no token to keep or to drop")
        if self.window is not None or self.dropped_window is not None:
            raise ValueError("a cache under a window forgets tokens by itself: give tokens up in a cache without one")
        given = self.positions_from_caller
        new = edited(
            self._held(), indices, encodings, dropped=dropped, close_up=close_up, positions_from_caller=given
        )  # fmt: skip
        with self._guard.changing():
            self._buffers.replace(new.parts)
            if close_up:
                self.next = len(self)
            self.edited = not close_up or new.parts[PADDING] is not None
            self.resume, self.heads_differ = None if given else new.following, new.heads_differ
            self.uncompacted = 0
            self.version += 1

    def _joinable(self) -> CachedTokens | None:
        """What is held, for `join`; None: nothing."""
        self._guard.check()
        if self.window is not None or self.dropped_window is not None:
            raise ValueError("caches under a window cannot be joined: tokens behind it are gone")
        if self.positions_from_caller or self.segments is not None:
            raise ValueError("caches with documents or positions of your own cannot be joined")
        if self.last:
            raise ValueError("join: this layer (FoXPro) keeps more of the newest token than of those before it")
        return self._held() if len(self) else None

    def _held(self) -> CachedTokens:
        """What is held, for an edit."""
        parts = self._buffers.all_live()
        k, positions = parts[K], parts[POSITIONS]
        assert k is not None, "tokens have keys"
        several_axes = positions is not None and positions.ndim > 2  # which a caller gives in every call
        following = torch.zeros(1, 1, dtype=torch.int64) if several_axes else self._following(k.device)
        return CachedTokens(parts, self._counted(k.device), following, self.rotated, self.length, self.heads_differ)

    def join(self, prefix: KVCache, encodings: Sequence[Encoding]) -> None:
        """Put the tokens of another cache before this one's: later calls follow a text of both.

        The prefix may have been read by itself, once for many texts: its one row serves all rows. This cache's tokens
        move behind it, and keys that are cached rotated are rotated further. The prefix stays as it is.

        Args:
            prefix: of the same layer.
            encodings: all of the layer's; `SelfAttention.join` passes them.

        Raises:
            ValueError: where keys cannot move (see `rerotate`), under a window, for positions of the caller's own, and
                for caches that do not fit together.
        """
        own, before = self._joinable(), prefix._joinable()
        if before is None:
            return
        if own is None:
            check_movable(encodings, before.length, rotated=before.rotated)
            new, edited = EditedTokens(before.parts, prefix.resume, before.heads_differ), prefix.edited
        else:
            new, edited = joined(own, before, encodings), self.edited or prefix.edited
            if not edited and own.parts[POSITIONS] is None and before.parts[POSITIONS] is None:
                new.parts[POSITIONS], new = None, new._replace(following=None)
        with self._guard.changing():
            self._buffers.replace(new.parts)
            self.rotated, self.length = prefix.rotated, prefix.length
            self.seen, self.next = self.seen + prefix.seen, prefix.next + self.next
            self.edited, self.resume, self.heads_differ = edited, new.following, new.heads_differ
            self.uncompacted = 0 if edited else None
            self.version += 1

    def _following(self, device: torch.device) -> Tensor:
        """The position of each row's next token, ``(rows | 1, 1)``."""
        if self.resume is not None:
            return self.resume
        positions, padding = self.positions, self.attention_mask
        last = torch.full((1, 1), self.next - 1, device=device) if positions is None else positions[:, -1:]
        count = last + 1  # padding repeats the position before it
        return count if padding is None else torch.where(padding.any(1, keepdim=True), count, 0)

    def select(self, rows: Tensor) -> None:
        """Row i becomes what row ``rows[i]`` was, as beams need it: ``(rows,)`` indices, or ``(batch,)`` bool."""
        if not isinstance(rows, Tensor) or rows.ndim != 1 or rows.is_floating_point():
            raise ValueError(f"rows must be a tensor of indices (rows,) or of bool (batch,), got {rows!r}")
        batch = None if self.k is None else self.k.shape[0]
        if rows.dtype == torch.bool:
            if batch is not None and len(rows) != batch:
                raise ValueError(f"rows must be of {batch} rows, got {len(rows)}")
            indices = rows.nonzero().flatten()
        else:
            indices = rows
            if batch is not None and rows.is_cpu and not bool(((rows >= 0) & (rows < batch)).all()):
                raise ValueError(f"rows must be indices from 0 to {batch - 1}, got {rows.tolist()}")
        self._change_rows(lambda t: t.index_select(0, indices.to(t.device)))

    def repeat(self, times: int) -> None:
        """Every row ``times`` times, one after the other."""
        check_whole("times", times)
        self._change_rows(lambda t: t.repeat_interleave(times, 0))

    def shift(self, by: int, encodings: Sequence[Encoding] = ()) -> None:
        """Move the kept tokens, sinks apart, by so many positions; the tokens to come follow them.

        Keys that are cached rotated are rotated further, exactly. ``shift(-cache.gap, encodings)`` closes the gap that
        dropped tokens have left, so that positions end at the number of tokens kept, as in StreamingLLM.

        Args:
            by: tokens, negative toward the start.
            encodings: all of the layer's.

        Raises:
            ValueError: for encodings whose keys cannot move (see `rerotate`), embeddings among them; where counted
                tokens would meet the sinks or the start; for sinks in rows with padding.
        """
        if isinstance(by, bool) or not isinstance(by, int) or abs(by) > LONGEST:
            raise ValueError(f"by must be an integer, in tokens, got {by!r}")
        positions, k = self.positions, self.k
        if positions is None and self.gap + by < 0:
            raise ValueError(f"by must be at least {-self.gap}, or tokens would come before those that stay, got {by}")
        if self.detached_sinks and self.attention_mask is not None:
            raise ValueError("by: rows with padding and sinks have gaps of different sizes; clear the cache instead")
        check_movable(encodings, self.length, rotated=self.rotated)
        if k is None:
            return
        first, axes = self.detached_sinks, 1 if positions is None or positions.ndim == 2 else positions.shape[-1]
        moved = torch.full((len(self) - first,), by, device=k.device)
        if axes > 1:
            moved = moved.unsqueeze(-1).expand(-1, axes)
        new_positions = new_k = None
        if positions is not None:
            old = positions[:, first:]
            moved = torch.where(has_no_position(old, axes).view(*old.shape[:2], *([1] * (axes > 1))), 0, moved)
            new_positions = old + moved
        if self.rotated:
            new_k = rerotate(k[:, :, first:], encodings, moved, length=self.length)
        with self._guard.changing():
            if new_positions is not None:
                self._buffers.replace_from(POSITIONS, first, new_positions)
            if new_k is not None:
                self._buffers.replace_from(K, first, new_k)
            self.next, self.version = self.next + by, self.version + 1
            self.resume = None if self.resume is None else self.resume + by

    def clear(self) -> None:
        """Forget everything; what `capacity` has made room for stays."""
        with self._guard:
            version = self.version
            self._guard.torn = True
            if self._buffers.capacity is None:
                self._buffers.held, self._buffers.room = [], 0
            self._forget()
            self.version = version + 1
            self._guard.torn = False

    def __copy__(self) -> Self:
        """A cache that goes on by itself: whichever of the two grows first copies what both have."""
        self._guard.check()
        fork = type(self).__new__(type(self))
        vars(fork).update(vars(self))
        fork._buffers = copy.copy(self._buffers)
        fork._buffers.held = list(self._buffers.held)
        fork._guard = fork._buffers.guard = Guard()
        self._buffers.shared = fork._buffers.shared = True
        return fork

    def _check(self, new: TokenData, rotated: bool, length: int | None, axes: int) -> None:
        """Raise a ValueError where a call does not go on what the calls before it have left."""
        positions, buffers = new[POSITIONS], self._buffers
        held = buffers.held if buffers.stop > buffers.start else []
        if positions is None and self.positions_from_caller:
            self._check_goes_on()
        if axes > 1 and (positions is None or (held and held[POSITIONS] is None)):
            raise ValueError(f"positions must be given in every call that shares this cache: they have {axes} axes")
        if not held:
            return
        if (held[SEGMENTS] is None) != (new[SEGMENTS] is None):
            raise ValueError("segments must be given in every call that shares a cache, or in none")
        if self.rotated != rotated and self.length == length:
            kept = "rotated" if self.rotated else "as they were projected"
            raise ValueError(
                f"cache must have been filled by this layer, with tables in every call or in none: it keeps keys {kept}"
            )
        if self.rotated != rotated or self.length != length:
            raise ValueError(
                f"length must be the same in all calls that share a cache: {self.length} before, now {length}"
            )
        for name, old, now in (("k", held[K], new[K]), ("v", held[V], new[V])):
            if old is not None and now is not None:
                fits = old.shape[:2] == now.shape[:2] and old.shape[3] == now.shape[3] and old.dtype == now.dtype
                if not fits:
                    raise _mismatch(name, old, now)
        same = len(held) == len(new)
        for old, now in zip(held[TOKEN_STATES:], new[TOKEN_STATES:], strict=False):
            same = same and (old is None) == (now is None)
        if not same:
            raise ValueError("cache must have been filled by this layer: it holds what other encodings keep")

    def _check_goes_on(self) -> None:
        """Raise a ValueError where a caller who gave positions gives none any more."""
        if len(self):
            raise ValueError("positions must be given, as they were in an earlier call that shares this cache")

    def _window_of(self, window: int | None, droppable: bool, segments: Tensor | None) -> int | None:
        """The window of a call: its own, else the cache's."""
        if window is not None and self.window is not None and window > self.window:
            raise ValueError(f"window must be at most the cache's {self.window}, got {window}")
        window = self.window if window is None else window
        if self.dropped_window is not None and (window is None or window > self.dropped_window):
            raise ValueError(
                f"window must be at most {self.dropped_window}, as in the calls before: older tokens are forgotten, "
                f"got {window}"
            )
        if self.sinks and window is not None and (segments is not None or not droppable):
            what = "segments: each document has a start of its own" if droppable else "this layer's encodings or order"
            raise ValueError(f"sinks cannot be used with {what}")
        return window

    def _align(self, new: TokenData, device: torch.device) -> None:
        """Bring what is held and what comes to the same kinds, rows and precision."""
        past, tokens = len(self), num_tokens(new)
        for kind in (POSITIONS, PADDING, SEGMENTS):
            part, old = new[kind], self._buffers.live(kind)
            if part is None and old is None:
                continue
            if part is None:
                all_real = torch.ones(1, tokens, dtype=torch.bool, device=device)
                positions = torch.arange(self.next, self.next + tokens, device=device)
                part = new[kind] = all_real if kind == PADDING else positions[None]
            if old is None:
                all_real = torch.ones(1, past, dtype=torch.bool, device=device)
                old = all_real if kind == PADDING else self._counted(device)[None]
            elif part.shape[0] <= old.shape[0] and torch.promote_types(part.dtype, old.dtype) == old.dtype:
                continue
            rows = max(part.shape[0], old.shape[0])
            wide = old.to(torch.promote_types(part.dtype, old.dtype))
            self._buffers.add_kind(kind, wide.expand(rows, *wide.shape[1:]))

    def _tokens_to_keep(self, window: int) -> int:
        """Tokens that must stay under a window, sinks and slack included."""
        return self.sinks + max(window - 1, 1) + self.slack

    def _drop_old(self, window: int, in_place: bool) -> None:
        """Forget tokens that no later one can attend to."""
        to_keep = self._tokens_to_keep(window)
        if self.attention_mask is not None:
            if len(self) > 2 * to_keep:  # now and then: rows are put together one by one
                rows = compacted(self._buffers.all_live(), to_keep - self.sinks - self.slack, self.sinks, self.slack)
                (self._buffers.refill if in_place else self._buffers.replace)(rows)
                self.detached_sinks, self.uncompacted, self.dropped_window = self.sinks, self.slack, window
        elif len(self) > to_keep:
            self._buffers.drop(self.sinks, to_keep - self.sinks, in_place)
            self.detached_sinks, self.dropped_window = self.sinks, window

    def _change_rows(self, change: Callable[[Tensor], Tensor]) -> None:
        self._guard.check()
        held, last = self._buffers.with_rows(change), tuple(change(t) for t in self.last)
        resume = self.resume if self.resume is None or len(self.resume) == 1 else change(self.resume)
        with self._guard.changing():
            self._buffers.replace_rows(held)
            self.last, self.resume = last, resume
            self.version += 1


def _rows(x: Tensor | None, axes: int = 1) -> Tensor | None:
    """``(tokens, ...)`` or ``(batch, tokens, ...)`` as ``(batch | 1, tokens, ...)``."""
    return x if x is None or x.ndim == (2 if axes == 1 else 3) else x[None]


def _mismatch(name: str, old: Tensor, now: Tensor) -> ValueError:
    """The error for tokens of one kind that do not go on from those before them."""
    before, here = old.shape, now.shape
    if before[0] != here[0]:
        return ValueError(f"batch must be {before[0]} as in the calls before, got {here[0]}")
    return ValueError(
        f"cache must have been filled by this layer in the same precision: {name} was {old.dtype} "
        f"{tuple(before)}, now {now.dtype} {tuple(here)}"
    )
