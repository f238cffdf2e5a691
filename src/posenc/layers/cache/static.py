"""A cache of fixed size, whose steps are one graph for a compiler: no shape and no number changes from step to step.

    slot of token t = t mod capacity;   a step writes its slots, and a mask hides the slots that it may not attend to

The number of tokens so far is a tensor. A single new token attends to the keys in the order of the slots, and encodings
get their positions. Encodings that go by the order of keys (FoX, CoPE, stick-breaking, …) need the newest token last:
for them a token is also written into one more slot behind all others, and its own is hidden for the call. A chunk of
several tokens, and such encodings under a window, have the slots gathered in order, which copies the cache once a call.

A single new token on an NVIDIA GPU is for kernels, which write it and read the slots as they lie (`by_kernels`). Eager
calls on a CPU, where the count is read at no cost, attend to the slots that were used and to no others.

On a GPU no call waits: the host counts the tokens of eager calls by itself, and refuses too many of them. It does not
know of those that a compiled or captured step added; past the capacity their index is out of range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from posenc.encoding import Encoding, ScoreEncoding, WeightEncoding
from posenc.layers.cache.editing import CachedTokens, EditedTokens, edited, joined
from posenc.layers.cache.keys import Keys, NewTokens, StaticStep
from posenc.layers.cache.kv_cache import KVCache
from posenc.layers.cache.token_buffers import (
    PADDING,
    POSITIONS,
    Guard,
    TokenData,
    num_tokens,
    one_thread,
    token_axis,
)
from posenc.positions.checking import default_positions
from posenc.tracing import exporting, stand_ins, tracing
from posenc.validate import Causal


class StaticKVCache(nn.Module):
    """Keys and values of one layer in tensors of fixed size; `SelfAttention.static_cache` makes one.

    Its tensors are buffers that no state dict holds, so that a module which owns it can be exported. With a window old
    slots are reused, and a sequence may have any length; without one, more tokens than ``capacity`` are refused, under
    a compiler, or in a CUDA graph, by an index out of range.

    Args:
        like: key, value and what each encoding keeps of one token, ``(1, heads, 1, ...)``, None for nothing.
        batch_size: rows.
        capacity: tokens that there is room for, padding included.
        axes: coordinates of a position.
        window: tokens that a token attends to, its own included; None: all.
        position_dtype: of positions, int64 or floating.
        rotated: whether keys are passed in rotated.
        length: the length that is declared for their rotation.
        newest_last: whether encodings go by the order of keys, for which the newest token gets one more slot behind all
            others.

    Raises:
        ValueError: for sizes below 1, and a window that does not fit.
    """

    k: Tensor
    v: Tensor
    positions: Tensor
    real: Tensor
    counts: Tensor
    written: Tensor

    def __init__(
        self,
        like: Sequence[Tensor | None],
        batch_size: int,
        capacity: int,
        *,
        axes: int = 1,
        window: int | None = None,
        position_dtype: torch.dtype = torch.int64,
        rotated: bool = True,
        length: int | None = None,
        newest_last: bool = False,
    ) -> None:
        super().__init__()
        for name, value in (("batch_size", batch_size), ("capacity", capacity), ("window", window)):
            is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 1
            if not is_count and not (value is None and name == "window"):
                raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
        if window is not None and window > capacity:
            raise ValueError(f"capacity must be at least the window of {window}, got {capacity}")
        self.capacity, self.window, self.rotated, self.length = capacity, window, rotated, length
        names = ["k", "v", *(f"token_state_{number}" for number in range(len(like) - 2))]
        self._states = names[2:]
        self._newest_last = newest_last and window is None
        self._counted = 0  # tokens of eager calls, which are at least so many
        self._edited = 0  # tokens that an edit has left, which `crop` does not reach
        self._heads_differ = False  # whether key heads hold different tokens, so that positions are nowhere
        self._all_counted = True  # no positions of a caller or of an edit: none are further apart than slots
        self._guard = Guard()  # refuses calls of other threads, and all calls after an interrupted change
        with torch.inference_mode(False):  # a later call may write outside of inference mode, where it must not
            self._allocate(dict(zip(names, like, strict=True)), batch_size, axes, position_dtype)

    def _allocate(
        self, like: Mapping[str, Tensor | None], batch_size: int, axes: int, position_dtype: torch.dtype
    ) -> None:
        """Register the buffers, all of them empty."""
        for name, part in like.items():
            slots = self.capacity + self._newest_last
            held = None if part is None else part.new_zeros(batch_size, part.shape[1], slots, *part.shape[3:])
            self.register_buffer(name, held, persistent=False)
        device = self.k.device
        places = (batch_size, self.capacity) if axes == 1 else (batch_size, self.capacity, axes)
        for name, buffer in (
            ("positions", torch.zeros(places, dtype=position_dtype, device=device)),
            ("real", torch.zeros(batch_size, self.capacity, dtype=torch.bool, device=device)),
            # Tokens so far, then the real ones of each row: in one tensor, so that a step counts all of them or none.
            ("counts", torch.zeros(1 + batch_size, dtype=torch.int64, device=device)),
            ("written", torch.zeros((), dtype=torch.int64, device=device)),  # the most tokens for which slots were used
        ):
            self.register_buffer(name, buffer, persistent=False)

    @property
    def seen(self) -> Tensor:
        """Tokens so far, padding included, ``()``; a view."""
        return self.counts[0]

    @property
    def count(self) -> Tensor:
        """Real tokens of each row so far, ``(batch, 1)``; a view."""
        return self.counts[1:, None]

    def _following(self, tokens: int, attention_mask: Tensor | None) -> Tensor:
        """Positions of the next tokens where they count, ``(batch, tokens)``; padding is not counted.

        On a CPU one row of default positions, whose table is known, where they are those of all rows.
        """
        if attention_mask is None:
            if self.counts.is_cpu and not stand_ins():
                first, *others = self.counts.tolist()[1:]
                if others == [first] * len(others):
                    return default_positions(tokens, self.counts.device, first)
            return self.count if tokens == 1 else self.count + torch.arange(tokens, device=self.count.device)
        return (self.count + attention_mask.cumsum(-1) - 1).clamp(min=0)

    def _counts_positions(self, new: NewTokens) -> bool:
        """Whether no two positions are further apart than there are slots, once a call's tokens are written."""
        return self._all_counted and not new.positions_from_caller

    def _note_positions(self, new: NewTokens) -> None:
        if new.positions_from_caller and self._all_counted:
            self._all_counted = False

    def _extended(
        self, new: NewTokens, encodings: Sequence[Encoding] = (), causal: Causal = True, *, learns: bool = False
    ) -> Keys:
        """All slots, with the tokens of one more call written; `_take` will count them.

        Args:
            new: what the call projected from its input.
            encodings: the layer's inside attention.
            causal: as in `attention`.
            learns: whether a backward pass may follow.
        """
        self._guard.check()
        self._check(new, learns)
        self._note_positions(new)
        k, tokens, positions = new.k, new.k.shape[2], new.positions
        if self.window is None and k.is_cpu and not stand_ins():
            return self._extended_by_number(new)
        last_needed = by_order(encodings)
        twice = last_needed and tokens == 1 and self._newest_last
        # A slot is used again only under a window. Without one a slot past the capacity is no slot, so that too many
        # tokens are an index out of range, which is all that a compiled graph can tell of them.
        slots = self.counts[:1] if tokens == 1 else self.seen + torch.arange(tokens, device=k.device)
        if self.window is not None:
            slots = slots % self.capacity
            self.written.copy_(torch.maximum(self.written, self.seen + tokens))
        # In place: until `_take` has counted them, no call attends to these slots.
        if new.attention_mask is None:
            self.real.index_fill_(1, slots, value=True)
        else:
            self.real.index_copy_(1, slots, new.attention_mask)
        if positions is not None:
            rows = positions if positions.ndim == self.positions.ndim else positions[None]
            rows = rows.expand(len(self.positions), *rows.shape[1:]).to(self.positions.dtype)
            self.positions.index_copy_(1, slots, rows)
        # One token too many must not end up in the slot of the newest: its index is out of range.
        written = slots + (slots >= self.capacity) if self._newest_last else slots
        tensors: list[Tensor | None] = []
        for name, part in zip(("k", "v", *self._states), (k, new.v, *new.token_states), strict=True):
            held = None if part is None else getattr(self, name)
            if held is not None and part is not None:
                held.index_copy_(2, written, part.detach())
                if twice:
                    held.narrow(2, self.capacity, 1).copy_(part.detach())
            tensors.append(held)
        index = torch.arange(self.capacity, device=k.device)
        visible, key_positions, window = self.real, self.positions, self.window
        if twice:
            visible = torch.cat([visible & (index < self.seen), visible.index_select(1, slots)], 1)
            if positions is not None:
                key_positions = torch.cat([key_positions, key_positions.index_select(1, slots)], 1)
        else:
            if self._newest_last:
                tensors = [None if t is None else t.narrow(2, 0, self.capacity) for t in tensors]
            if window is None:  # `crop`, and calls that came to no end, leave marks behind the newest token
                visible = visible & (index < self.seen + tokens if tokens > 1 else index <= self.seen)
        if (last_needed or tokens > 1) and not twice:
            # The newest token last, as a causal order by index wants it: slot 0 of the order is the one that the next
            # token will use. Slots that were never used come first then, and are not visible.
            order = (self.seen + tokens + index) % self.capacity
            tensors = [None if t is None else t.index_select(2, order) for t in tensors]
            visible, key_positions = (t.index_select(1, order) for t in (visible, key_positions))
        elif window is not None:
            # One query, which sees keys in any order: the window is told by how long ago a slot was written.
            age = (self.seen - index) % self.capacity
            visible, window = visible & (age < window), None
        keys, values, *states = tensors
        assert keys is not None, "tokens have keys"
        assert values is not None, "tokens have values"
        return Keys(
            keys, values, states, None if positions is None else key_positions, True, None, None, None,
            visible[:, None, None], window, StaticStep(new.attention_mask, tokens),
        )  # fmt: skip

    def _extended_by_number(self, new: NewTokens) -> Keys:
        """The same on a CPU, without a window: the count is read at no cost, and no query looks at an empty slot."""
        seen, tokens = int(self.counts[0]), new.k.shape[2]
        came: TokenData = [new.k, new.v, new.positions, new.attention_mask, None, *new.token_states]
        parts: TokenData = []
        for kind, (held, part) in enumerate(zip(self._parts(), came, strict=True)):
            axis = token_axis(kind)
            if held is not None and part is not None:
                held.narrow(axis, seen, tokens).copy_(part)
            elif held is not None and kind == PADDING:
                held.narrow(axis, seen, tokens).fill_(True)
            parts.append(None if held is None else held.narrow(axis, 0, seen + tokens))
        keys, values, positions, real, _, *states = parts
        assert keys is not None, "tokens have keys"
        assert values is not None, "tokens have values"
        padding = None if real is None or bool(real.all()) else real
        if new.positions is None or (self._all_counted and padding is None):  # 0, 1, 2, …
            positions = None
        return Keys(
            keys, values, states, positions, not self._all_counted, padding, step=StaticStep(new.attention_mask, tokens)
        )

    def _take(self, keys: Keys, _: tuple[Tensor, ...] = ()) -> None:
        """Count what `_extended` wrote, at the end of a call that went well: last, and all at once.

        Until then what was written lies in slots that no query attends to.
        """
        self._guard.check()
        step = keys.step
        if not isinstance(step, StaticStep):
            raise ValueError("keys must be of a static cache")
        if step.attention_mask is None:
            self.counts.add_(step.tokens)
        else:
            real = step.attention_mask.sum(1)
            self.counts.add_(torch.cat([real.new_full((1,), step.tokens), real]))
        if not _unread(self.counts):
            self._counted += step.tokens

    def crop(self, tokens: int) -> None:
        """Forget the last tokens; looks at how many there are."""
        self._guard.check()
        seen = int(self.seen)
        if isinstance(tokens, bool) or not isinstance(tokens, int) or not 0 <= tokens <= seen:
            raise ValueError(f"tokens must be an integer from 0 to the {seen} that came, got {tokens!r}")
        if tokens > seen - self._edited:
            raise ValueError(
                f"tokens: only the {seen - self._edited} that came since tokens were taken out can be cropped; drop "
                "names others by their indices"
            )
        oldest = max(0, int(self.written) - self.capacity)  # the first token whose slot no later one has used
        most = seen - oldest - (1 if self.window is None else self.window) + 1
        if self.window is not None and oldest > 0 and tokens > most:
            raise ValueError(
                f"tokens must be at most {max(0, most)}, got {tokens}: newer tokens have overwritten those that the "
                "window would reach; give the cache a larger capacity"
            )
        slots = torch.arange(seen - tokens, seen, device=self.real.device) % self.capacity
        forgotten = torch.cat([self.counts.new_full((1,), tokens), self.real[:, slots].sum(1)])
        with self._guard.changing():
            if self.window is not None:  # else `seen` hides them
                self.real[:, slots] = False
            self.counts.sub_(forgotten)
        self._counted = seen - tokens

    def keep(self, indices: Tensor, encodings: Sequence[Encoding], *, close_up: bool = False) -> None:
        """Forget all tokens but some; see `KVCache.keep`. The slots of the others are free again."""
        self._edit(indices, encodings, close_up, dropped=False)

    def drop(self, indices: Tensor, encodings: Sequence[Encoding], *, close_up: bool = False) -> None:
        """Forget some tokens; the opposite of `keep`."""
        self._edit(indices, encodings, close_up, dropped=True)

    def _edit(self, indices: Tensor, encodings: Sequence[Encoding], close_up: bool, *, dropped: bool) -> None:
        held = self._held()
        if held is None:
            raise ValueError("the cache is empty: there is no token to keep or to drop")
        self._hold(edited(held, indices, encodings, dropped=dropped, close_up=close_up))

    def join(self, prefix: KVCache, encodings: Sequence[Encoding]) -> None:
        """Put the tokens of another cache before this one's; see `KVCache.join`.

        Raises:
            ValueError: as there, and where there is no room for both.
        """
        own, before = self._joinable(), prefix._joinable()
        if before is None:
            return
        tokens = num_tokens(before.parts) + (0 if own is None else num_tokens(own.parts))
        if tokens > self.capacity:
            raise ValueError(f"capacity of this cache is {self.capacity} tokens, those of both are {tokens}")
        if own is None:
            nothing = [None if t is None else t.narrow(token_axis(i), 0, 0) for i, t in enumerate(self._parts())]
            own = CachedTokens(nothing, self.counts[:0], self.count, self.rotated, self.length)
        self._hold(joined(own, before, encodings))

    def _joinable(self) -> CachedTokens | None:
        """What is held, for `join`; None: nothing."""
        held = self._held()
        positions = None if held is None else held.parts[POSITIONS]
        if held is not None and positions is not None and positions.ndim == 2:
            late, real = positions >= held.following, held.parts[PADDING]  # as no counted position is
            if bool((late if real is None else late & real).any()):
                raise ValueError("caches with positions of your own cannot be joined")
        return held

    def _parts(self) -> TokenData:
        """The tensors of all slots, by kind."""
        states = [getattr(self, name) for name in self._states]
        return [self.k, self.v, self.positions, self.real, None, *states]

    def _held(self) -> CachedTokens | None:
        """What is held, for an edit; None: nothing. Looks at the numbers."""
        self._guard.check()
        if self.window is not None:
            raise ValueError("a cache under a window forgets tokens by itself: edit a cache without one")
        seen = int(self.seen)
        if not seen:
            return None
        parts = [None if t is None else t.narrow(token_axis(i), 0, seen) for i, t in enumerate(self._parts())]
        positions, real, counted = parts[POSITIONS], parts[PADDING], torch.arange(seen, device=self.k.device)
        if real is not None and bool(real.all()):
            parts[PADDING] = None
            by_number = positions is not None and positions.ndim == 2 and bool((positions == counted).all())
            if by_number or self._heads_differ:
                parts[POSITIONS] = None
        return CachedTokens(parts, counted, self.count, self.rotated, self.length, self._heads_differ)

    def _hold(self, new: EditedTokens) -> None:
        """Hold what an edit gave in place of all else."""
        tokens, parts = num_tokens(new.parts), list(new.parts)
        with self._guard.changing():
            if parts[POSITIONS] is None:
                parts[POSITIONS] = torch.arange(tokens, device=self.k.device)[None]
            if parts[PADDING] is None:
                parts[PADDING] = torch.ones(1, tokens, dtype=torch.bool, device=self.k.device)
            for kind, (held, part) in enumerate(zip(self._parts(), parts, strict=True)):
                if held is not None and part is not None:
                    held.narrow(token_axis(kind), 0, tokens).copy_(part)
            self.counts[0] = tokens
            self.counts[1:] = tokens if new.following is None else new.following[:, 0]
            self._counted = self._edited = tokens
            self._heads_differ, self._all_counted = new.heads_differ, False

    def select(self, rows: Tensor) -> None:
        """Row i becomes what row ``rows[i]`` was; as many rows as there were."""
        if not isinstance(rows, Tensor) or rows.shape != self.real.shape[:1] or rows.dtype == torch.bool:
            raise ValueError(f"rows must be {self.real.shape[0]} indices, as many as the cache has rows, got {rows!r}")
        by_row = [held for name, held in self.named_buffers() if name not in ("counts", "written")]
        by_row.append(self.counts[1:])
        with self._guard.changing():
            for held in by_row:
                held.copy_(held.index_select(0, rows.to(held.device)))

    def clear(self) -> None:
        """Forget everything; the memory stays."""
        with one_thread(self):
            self._guard.torn = True
            for held in (self.real, self.counts, self.written):
                held.zero_()
            self._counted = self._edited = 0
            self._heads_differ, self._all_counted = False, True
            self._guard.torn = False

    def _check(self, new: NewTokens, learns: bool) -> None:
        """Raise a ValueError where a call does not fit the tensors, and for what a cache of fixed size cannot do."""
        for name, value in (("mask", new.mask), ("segments", new.segments)):
            if value is not None:
                raise ValueError(f"{name} cannot serve with a static cache: pass attention_mask, or use a KVCache")
        if new.window is not None and new.window != self.window:
            raise ValueError(f"window must be the static cache's {self.window}, got {new.window}")
        if (new.rotated, new.length) != (self.rotated, self.length):
            raise ValueError(
                f"length must be {self.length}, for which the static cache was made, and tables must be those that it "
                f"leaves the layer to make; got length {new.length}"
            )
        if learns and not exporting():
            raise ValueError("cache: no gradient flows through a static cache: use torch.no_grad(), or a KVCache")
        k, positions, attention_mask = new.k, new.positions, new.attention_mask
        tokens, traced = k.shape[2], _unread(k)
        for name, held, part in (("k", self.k, k), ("v", self.v, new.v)):
            if (held.shape[:2], held.shape[3], held.dtype) != (part.shape[:2], part.shape[3], part.dtype):
                raise ValueError(
                    f"cache must have been made by this layer for {part.shape[0]} rows: {name} is {held.dtype} "
                    f"{tuple(held.shape)}, now came {part.dtype} {tuple(part.shape)}"
                )
        if [state is None for state in new.token_states] != [getattr(self, name) is None for name in self._states]:
            raise ValueError("cache must have been made by this layer: it holds what other encodings keep")
        if positions is not None and positions.is_floating_point() and not self.positions.is_floating_point():
            raise ValueError(
                f"positions of this cache are {self.positions.dtype}: give it position_dtype={positions.dtype}"
            )
        if tokens > self.capacity - (0 if self.window is None else self.window - 1):
            need = tokens if self.window is None else tokens + self.window - 1
            raise ValueError(f"capacity of this cache is {self.capacity} tokens, but this call needs {need}")
        if self.window is not None and attention_mask is not None:
            if traced or bool((attention_mask[:, :-1] & ~attention_mask[:, 1:]).any()) or int(self.seen):
                raise ValueError("attention_mask with a window: padding only on the left, in an eager first call")
        elif self.window is None and not traced:
            seen = int(self.seen) if k.is_cpu else self._counted
            if seen + tokens > self.capacity:
                raise ValueError(f"capacity of this cache is {self.capacity} tokens, {seen} came, now {tokens}")


def by_order(encodings: Sequence[Encoding]) -> bool:
    """Whether encodings of a layer may ask for the newest token last."""
    return any(isinstance(encoding, ScoreEncoding | WeightEncoding) for encoding in encodings)


def _unread(tensor: Tensor) -> bool:
    """Whether a call is only traced, or captured in a CUDA graph: nothing is computed, and no number can be read."""
    return tracing() or (tensor.is_cuda and torch.cuda.is_current_stream_capturing())
