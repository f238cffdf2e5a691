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

from posenc.layers.cache.token_buffers import StepWriter
from posenc.positions._counted import AHEAD, Ahead, counted, special
from posenc.tracing import tracing


class PendingSlots(NamedTuple):
    """The slots that one call's queries may attend to, and what `StaticKVCache.take` will record of the call."""

    k: Tensor  # (batch, num_kv_heads, keys, head_dim): all slots, or those with tokens alone
    v: Tensor  # (batch, num_kv_heads, keys, value_dim)
    features: list[Tensor | None]  # (batch, heads, keys, ...)
    positions: Tensor | None  # (batch, keys, ...); None: 0, 1, 2, …
    visible: Tensor | None  # bool (batch, 1, 1, capacity); None: all
    remaining_window: int | None  # the window that is still to be applied
    slot_positions: Tensor | None  # positions of all slots, in the order of the slots
    real: Tensor  # which slots hold a real token
    new_real: Tensor  # new real tokens of each row, (batch, 1)
    tokens: int
    first: int | None = (
        None  # the first new slot, where ``slot_positions`` and ``real`` are those of the new ones alone
    )


class PlainTokens:
    """A cache whose tokens are all real, as read from its tensors; valid until one of them is written by somebody else.

    Reading them takes longer than the other work of a step; PyTorch counts the writes into a tensor, including writes
    by a compiled graph. The next slots are marked and get positions ahead: nobody attends to one before its token.

    Args:
        held: the cache's buffers.
        tokens: that are there.
        counted: whether their positions are 0, 1, 2, ….
    """

    def __init__(self, held: Mapping[str, Tensor | None], tokens: int, counted: bool) -> None:
        positions, real, count, seen = held["positions"], held["real"], held["count"], held["seen"]
        if positions is None or real is None or count is None or seen is None:
            raise RuntimeError("they are always there")
        self.positions, self.real, self.count, self.seen = positions, real, count, seen
        self.counted, self.known_to = counted, tokens  # slots that are marked and have their positions
        self.note(tokens)

    def holds(self, held: Mapping[str, Tensor | None]) -> bool:
        """Whether nobody else has written since, into the tensors that the cache still has."""
        if held["seen"] is not self.seen or held["count"] is not self.count or held["real"] is not self.real:
            return False
        return held["positions"] is self.positions and self._versions() == self.versions

    def note(self, tokens: int) -> None:
        """So many tokens are there now, and what was seen is true of them too."""
        self.tokens, self.versions = tokens, self._versions()

    def add(self, position: int, capacity: int) -> None:
        """One more token, at the position that is its slot."""
        if position >= self.known_to:
            stop = min(position + AHEAD, capacity)
            if self.positions.ndim == 2:
                ahead = self.positions.narrow(1, position, stop - position)
                ahead.copy_(torch.arange(position, stop, device=ahead.device))
            self.real.narrow(1, position, stop - position).fill_(True)
            self.known_to = stop
        self.count.add_(1)
        self.seen.add_(1)
        self.note(position + 1)

    def _versions(self) -> tuple[int, ...]:
        return self.seen._version, self.count._version, self.real._version, self.positions._version


class StaticKVCache(nn.Module):
    """Keys and values of one layer in tensors of fixed size; `SelfAttention.static_cache` makes one.

    Its tensors are buffers that no state dict holds, so that a module which owns it can be exported. With a window old
    slots are reused, and a sequence may have any length; without one, more tokens than ``capacity`` are refused, under
    a compiler by an index out of range.

    Args:
        like: key, value and what each encoding remembers of one token, ``(1, heads, 1, ...)``, None for nothing.
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
    count: Tensor
    seen: Tensor

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
        names = ["k", "v", *(f"feature_{number}" for number in range(len(like) - 2))]
        self._features, self._ahead = names[2:], Ahead()
        self._known_tokens: PlainTokens | None = None
        self._writer: StepWriter | None = None
        self._oldest = 0  # the first token whose slot was not overwritten before tokens were forgotten by `crop`
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
            ("count", torch.zeros(batch_size, 1, dtype=torch.int64, device=device)),  # real tokens so far
            ("seen", torch.zeros((), dtype=torch.int64, device=device)),  # tokens so far
        ):
            self.register_buffer(name, buffer, persistent=False)

    def __getstate__(self) -> dict[str, object]:
        """Copies look at their tensors anew: how often those were written is another number for a copy."""
        return {**self.__dict__, "_known_tokens": None, "_writer": None}

    def following(self, tokens: int, attention_mask: Tensor | None) -> Tensor:
        """Positions of the next tokens where they count, ``(batch, tokens)``; padding is not counted."""
        if attention_mask is None:
            return self.count + torch.arange(tokens, device=self.count.device)
        return (self.count + attention_mask.cumsum(-1) - 1).clamp(min=0)

    def extended(
        self,
        k: Tensor,
        v: Tensor,
        features: Sequence[Tensor | None],
        *,
        positions: Tensor | None,
        attention_mask: Tensor | None,
        in_order: bool,
    ) -> PendingSlots:
        """All slots, with the tokens of one more call written; `take` will count them.

        Args:
            k, v: of the new tokens, ``(batch, num_kv_heads, tokens, width)``.
            features: what encodings remember of them.
            positions: ``(*batch, tokens, ...)``; None: no encoding reads any.
            attention_mask: bool ``(batch, tokens)``; None: all are real.
            in_order: whether the newest token must be the last key.
        """
        tokens = k.shape[2]
        self._check(k, v, features, positions, attention_mask)
        if attention_mask is None and self.window is None and self.seen.is_cpu and not special():
            seen = int(self.seen)
            if self._all_real(seen):
                return self._side_by_side(seen, k, v, features, positions)
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
        for name, part in zip(("k", "v", *self._features), (k, v, *features), strict=True):
            tensor = None if part is None else getattr(self, name).index_copy_(2, slots, part.detach())
            tensors.append(tensor)
        visible, key_positions, window = real, slot_positions, self.window
        if window is None:  # steps mark slots ahead of their tokens
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
        """Count what `extended` wrote, at the end of a call that went well."""
        positions, real = self.positions, self.real
        if pending.first is not None:
            positions, real = (t.narrow(1, pending.first, pending.tokens) for t in (positions, real))
        if pending.slot_positions is not None:
            positions.copy_(pending.slot_positions)
        real.copy_(pending.real)
        self.count.add_(pending.new_real)
        self.seen.add_(pending.tokens)

    def _side_by_side(
        self, seen: int, k: Tensor, v: Tensor, features: Sequence[Tensor | None], positions: Tensor | None
    ) -> PendingSlots:
        """What `extended` returns for real tokens in their order, without copies and without slots that hold none.

        Only in eager calls on the CPU: the number of tokens so far is looked at.
        """
        tokens = k.shape[2]
        tensors: list[Tensor | None] = []
        for name, part in zip(("k", "v", *self._features), (k, v, *features), strict=True):
            held: Tensor | None = getattr(self, name)
            if held is not None and part is not None:
                held.narrow(2, seen, tokens).copy_(part.detach())
                held = held.narrow(2, 0, seen + tokens)
            tensors.append(held)
        keys, values, *remembered = tensors
        if keys is None or values is None:
            raise RuntimeError("keys and values are always there")
        all_positions = new_positions = None
        if positions is not None:
            rows = positions if positions.ndim == self.positions.ndim else positions[None]
            new_positions = rows.expand(len(self.positions), *rows.shape[1:]).to(self.positions.dtype)
            if not (self._counted(seen) and bool((new_positions == counted(seen, seen + tokens, k.device)).all())):
                all_positions = torch.cat([self.positions.narrow(1, 0, seen), new_positions], 1)
        real = self.real.new_ones(self.real.shape[0], tokens)
        return PendingSlots(
            keys, values, remembered, all_positions, None, None, new_positions, real, real.sum(1, keepdim=True), tokens,
            seen,
        )  # fmt: skip

    def next_step(self, *, reads_positions: bool) -> int | None:
        """The position of the next token as `KVCache.next_step` has it; looks at the numbers, on the CPU alone."""
        if self.window is not None or not self.rotated or self.length is not None:
            return None
        known = self._known_tokens
        if known is None or not known.holds(self._buffers):
            self._known_tokens = known = self._look()
        if known is None or known.tokens >= self.capacity or (reads_positions and not known.counted):
            return None
        return known.tokens

    def step_position(self, position: int, device: torch.device) -> Tensor:
        """What `next_step` gave as a tensor ``(1,)``, which nobody may write into."""
        return self._ahead.at(position, device)

    def write_step(
        self, k: Tensor, v: Tensor, features: Sequence[Tensor | None], position: int
    ) -> tuple[Tensor, Tensor, Sequence[Tensor | None]] | None:
        """Write the token of a `next_step`, as `KVCache.write_step` does."""
        held = self._buffers
        remembered, writer = [held[name] for name in self._features], self._writer
        if writer is None or not writer.serves(held["k"], held["v"], remembered):
            writer = self._writer = StepWriter(held["k"], held["v"], remembered)
        return writer.write(k, v, features, 0, position)

    def count_step(self, position: int) -> None:
        """Count the token of `write_step`."""
        if self._known_tokens is None:
            raise RuntimeError("next_step comes first")
        self._known_tokens.add(position, self.capacity)

    def _look(self) -> PlainTokens | None:
        """What the tensors say of the tokens, if it is what steps need."""
        seen = self.seen
        if not seen.is_cpu or any(t is not None and t.is_inference() for t in self._buffers.values()):
            return None  # tensors of inference mode count no writes
        tokens = int(seen)
        return PlainTokens(self._buffers, tokens, self._counted(tokens)) if self._all_real(tokens) else None

    def _all_real(self, seen: int) -> bool:
        """Whether no row has any padding."""
        return int(self.count) == seen if self.count.numel() == 1 else bool((self.count == seen).all())

    def _counted(self, seen: int) -> bool:
        """Whether positions are 0, 1, 2, …: a caller may have given others."""
        if self.positions.ndim != 2:
            return False
        return bool((self.positions.narrow(1, 0, seen) == counted(0, seen, self.positions.device)).all())

    def crop(self, tokens: int) -> None:
        """Forget the last tokens; looks at how many there are."""
        seen = int(self.seen)
        if isinstance(tokens, bool) or not isinstance(tokens, int) or not 0 <= tokens <= seen:
            raise ValueError(f"tokens must be an integer from 0 to the {seen} that came, got {tokens!r}")
        oldest = max(self._oldest, seen - self.capacity)
        most = seen - oldest - (1 if self.window is None else self.window) + 1
        if self.window is not None and oldest > 0 and tokens > most:
            raise ValueError(
                f"tokens must be at most {max(0, most)}, got {tokens}: newer tokens have overwritten those that the "
                "window would reach; give the cache a larger capacity"
            )
        self._oldest = oldest
        known = (
            self._known_tokens if self._known_tokens is not None and self._known_tokens.holds(self._buffers) else None
        )
        slots = torch.arange(seen - tokens, seen, device=self.real.device) % self.capacity
        self.count.sub_(self.real[:, slots].sum(1, keepdim=True))
        if self.window is not None:  # else `seen` hides them
            self.real[:, slots] = False
        self.seen.sub_(tokens)
        if known is not None:
            known.note(seen - tokens)

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row ``rows[i]`` was; as many rows as there were."""
        if not isinstance(rows, Tensor) or rows.shape != self.real.shape[:1] or rows.dtype == torch.bool:
            raise ValueError(f"rows must be {self.real.shape[0]} indices, as many as the cache has rows, got {rows!r}")
        for name, held in self.named_buffers():
            if name != "seen":
                held.copy_(held.index_select(0, rows.to(held.device)))

    def clear(self) -> None:
        """Forget everything; the memory stays."""
        self._oldest = 0
        for held in (self.real, self.count, self.seen):
            held.zero_()

    def _check(
        self,
        k: Tensor,
        v: Tensor,
        features: Sequence[Tensor | None],
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
        if [f is None for f in features] != [getattr(self, name) is None for name in self._features]:
            raise ValueError("cache must have been made by this layer: it holds what other encodings remember")
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
