"""A cache of fixed size, whose steps are one graph for a compiler: no shape and no number changes from step to step.

    slot of token t = t mod capacity;   a step writes its slots, and a mask hides the slots that it may not attend to

The number of tokens so far is a tensor. A single new token attends to the keys in the order of the slots, and encodings
get their positions. A chunk of several tokens, and encodings that go by the order of keys (FoX, CoPE, stick-breaking,
…), need the newest token last: for them the slots are gathered in that order, which copies the cache once a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from posenc.layers.cache.guard import Guard, one_thread
from posenc.tracing import tracing


class PendingSlots(NamedTuple):
    """The slots that one call's queries may attend to, and what `StaticKVCache.take` will record of the call."""

    k: Tensor  # (batch, num_kv_heads, keys, head_dim): all slots, or those with tokens alone
    v: Tensor  # (batch, num_kv_heads, keys, value_dim)
    token_states: list[Tensor | None]  # (batch, heads, keys, ...)
    positions: Tensor | None  # (batch, keys, ...); None: 0, 1, 2, …
    visible: Tensor | None  # bool (batch, 1, 1, capacity); None: all
    remaining_window: int | None  # the window that is still to be applied
    slot_positions: Tensor | None  # positions of all slots, in the order of the slots
    real: Tensor  # which slots hold a real token
    new_real: Tensor  # new real tokens of each row, (batch, 1)
    tokens: int


class StaticKVCache(nn.Module):
    """Keys and values of one layer in tensors of fixed size; `SelfAttention.static_cache` makes one.

    Its tensors are buffers that no state dict holds, so that a module which owns it can be exported. With a window old
    slots are reused, and a sequence may have any length; without one, more tokens than ``capacity`` are refused, under
    a compiler by an index out of range.

    Args:
        like: key, value and what each encoding keeps of one token, ``(1, heads, 1, ...)``, None for nothing.
        batch_size: rows.
        capacity: tokens that there is room for, padding included.
        axes: coordinates of a position.
        window: tokens that a token attends to, its own included; None: all.
        position_dtype: of positions, int64 or floating.
        rotated: whether keys are passed in rotated.
        length: the length that is declared for their rotation.

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
        self.guard = Guard()  # refuses calls of other threads, and all calls after an interrupted change
        with torch.inference_mode(False):  # a later call may write outside of inference mode, where it must not
            self._allocate(dict(zip(names, like, strict=True)), batch_size, axes, position_dtype)

    def _allocate(
        self, like: Mapping[str, Tensor | None], batch_size: int, axes: int, position_dtype: torch.dtype
    ) -> None:
        """Register the buffers, all of them empty."""
        for name, part in like.items():
            held = None if part is None else part.new_zeros(batch_size, part.shape[1], self.capacity, *part.shape[3:])
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

    def following(self, tokens: int, attention_mask: Tensor | None) -> Tensor:
        """Positions of the next tokens where they count, ``(batch, tokens)``; padding is not counted."""
        if attention_mask is None:
            return self.count + torch.arange(tokens, device=self.count.device)
        return (self.count + attention_mask.cumsum(-1) - 1).clamp(min=0)

    def extended(
        self,
        k: Tensor,
        v: Tensor,
        token_states: Sequence[Tensor | None],
        *,
        positions: Tensor | None,
        attention_mask: Tensor | None,
        in_order: bool,
    ) -> PendingSlots:
        """All slots, with the tokens of one more call written; `take` will count them.

        Args:
            k, v: of the new tokens, ``(batch, num_kv_heads, tokens, width)``.
            token_states: what encodings keep of them.
            positions: ``(*batch, tokens, ...)``; None: no encoding reads any.
            attention_mask: bool ``(batch, tokens)``; None: all are real.
            in_order: whether the newest token must be the last key.
        """
        tokens = k.shape[2]
        self.guard.check()
        self._check(k, v, token_states, positions, attention_mask)
        slots = self.seen + torch.arange(tokens, device=k.device)
        slots = slots if self.window is None else slots % self.capacity
        new_real = self.real.new_ones(self.real.shape[0], tokens) if attention_mask is None else attention_mask
        real = self.real.index_copy(1, slots, new_real)
        slot_positions = self.positions
        if positions is not None:
            rows = positions if positions.ndim == self.positions.ndim else positions[None]
            slot_positions = slot_positions.index_copy(
                1, slots, rows.expand(len(slot_positions), *rows.shape[1:]).to(slot_positions.dtype)
            )
        tensors: list[Tensor | None] = []
        self.written.copy_(torch.maximum(self.written, self.seen + tokens))
        for name, part in zip(("k", "v", *self._states), (k, v, *token_states), strict=True):
            tensor = None if part is None else getattr(self, name).index_copy_(2, slots, part.detach())
            tensors.append(tensor)
        visible, key_positions, window = real, slot_positions, self.window
        if window is None:  # `crop`, and calls that came to no end, leave marks behind the newest token
            visible = real & (torch.arange(self.capacity, device=k.device) < self.seen + tokens)
        if in_order:
            order = (self.seen + tokens + torch.arange(self.capacity, device=k.device)) % self.capacity
            tensors = [None if t is None else t.index_select(2, order) for t in tensors]
            visible, key_positions = (t.index_select(1, order) for t in (visible, slot_positions))
        elif window is not None:  # one query: how long ago a slot was written
            age = (self.seen - torch.arange(self.capacity, device=k.device)) % self.capacity
            visible, window = real & (age < window), None
        keys, values, *remembered = tensors
        if keys is None or values is None:
            raise RuntimeError("keys and values are always there")
        return PendingSlots(
            keys, values, remembered, key_positions, visible[:, None, None], window,
            slot_positions, real, new_real.sum(1, keepdim=True), tokens,
        )  # fmt: skip

    def take(self, pending: PendingSlots) -> None:
        """Count what `extended` wrote, at the end of a call that went well: last, and all at once.

        Until then positions and marks are those of slots that no query attends to.
        """
        self.guard.check()
        new = torch.cat([pending.new_real.new_full((1,), pending.tokens), pending.new_real.flatten()])
        if pending.slot_positions is not None:
            self.positions.copy_(pending.slot_positions)
        self.real.copy_(pending.real)
        self.counts.add_(new)

    def crop(self, tokens: int) -> None:
        """Forget the last tokens; looks at how many there are."""
        self.guard.check()
        seen = int(self.seen)
        if isinstance(tokens, bool) or not isinstance(tokens, int) or not 0 <= tokens <= seen:
            raise ValueError(f"tokens must be an integer from 0 to the {seen} that came, got {tokens!r}")
        oldest = max(0, int(self.written) - self.capacity)  # the first token whose slot no later one has used
        most = seen - oldest - (1 if self.window is None else self.window) + 1
        if self.window is not None and oldest > 0 and tokens > most:
            raise ValueError(
                f"tokens must be at most {max(0, most)}, got {tokens}: newer tokens have overwritten those that the "
                "window would reach; give the cache a larger capacity"
            )
        slots = torch.arange(seen - tokens, seen, device=self.real.device) % self.capacity
        forgotten = torch.cat([self.counts.new_full((1,), tokens), self.real[:, slots].sum(1)])
        with self.guard.changing():
            if self.window is not None:  # else `seen` hides them
                self.real[:, slots] = False
            self.counts.sub_(forgotten)

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row ``rows[i]`` was; as many rows as there were."""
        if not isinstance(rows, Tensor) or rows.shape != self.real.shape[:1] or rows.dtype == torch.bool:
            raise ValueError(f"rows must be {self.real.shape[0]} indices, as many as the cache has rows, got {rows!r}")
        by_row = [held for name, held in self.named_buffers() if name not in ("counts", "written")]
        by_row.append(self.counts[1:])
        with self.guard.changing():
            for held in by_row:
                held.copy_(held.index_select(0, rows.to(held.device)))

    def clear(self) -> None:
        """Forget everything; the memory stays."""
        with one_thread(self):
            self.guard.torn = True
            for held in (self.real, self.counts, self.written):
                held.zero_()
            self.guard.torn = False

    def _check(
        self,
        k: Tensor,
        v: Tensor,
        token_states: Sequence[Tensor | None],
        positions: Tensor | None,
        attention_mask: Tensor | None,
    ) -> None:
        """Raise a ValueError where a call does not fit the tensors."""
        tokens, traced = k.shape[2], tracing() or (k.is_cuda and torch.cuda.is_current_stream_capturing())
        for name, held, new in (("k", self.k, k), ("v", self.v, v)):
            if (held.shape[:2], held.shape[3], held.dtype) != (new.shape[:2], new.shape[3], new.dtype):
                raise ValueError(
                    f"cache must have been made by this layer for {new.shape[0]} rows: {name} is {held.dtype} "
                    f"{tuple(held.shape)}, now came {new.dtype} {tuple(new.shape)}"
                )
        if [f is None for f in token_states] != [getattr(self, name) is None for name in self._states]:
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
        elif self.window is None and not traced and int(self.seen) + tokens > self.capacity:
            raise ValueError(f"capacity of this cache is {self.capacity} tokens, {int(self.seen)} came, now {tokens}")
