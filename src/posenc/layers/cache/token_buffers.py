"""What a cache holds of each token: tensors with spare room behind the live tokens, so that a step copies no past.

    held     [ dropped … | start   live tokens   stop | spare room ]

New tokens are written behind ``stop``, which no query reads until the cache has moved ``stop``; what a window has left
behind lies before ``start``, and once the room is used up the live tokens move to the front. Where gradients may flow
back through the keys, writing in place would change tensors that autograd has saved, so the tensors are concatenated.

A step writes its tokens where no query looks and counts them last. Changes that overwrite what is kept (moving the
sinks up, putting rows together, `KVCache.select`) cannot be undone: one that an exception or Ctrl-C ends halfway leaves
the cache torn, and a torn cache refuses everything but ``clear``. Its `Guard` knows, and refuses a second thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

from posenc.backends.triton import guard, slots
from posenc.tracing import stand_ins, tracing

K, V, POSITIONS, PADDING, SEGMENTS, TOKEN_STATES = range(6)  # token states are the sixth and all that follow
FEWEST = 64  # tokens that a new tensor has room for, at least
TokenData = list[Tensor | None]  # one tensor of each kind, in this order; None: a kind that no token has


class Guard:
    """Of one cache; ``with guard:`` around a call refuses a second thread. Copies have a lock of their own."""

    def __init__(self, *, torn: bool = False) -> None:
        self.torn = torn
        self._lock = threading.RLock()  # that of a thread which is interrupted as it enters is still its own

    def __getstate__(self) -> dict[str, bool]:
        return {"torn": self.torn}

    def __setstate__(self, state: dict[str, bool]) -> None:
        Guard.__init__(self, torn=state["torn"])

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("cache: another thread is in a call with this cache; give each thread one of its own")

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def check(self) -> None:
        """Raise a RuntimeError for a torn cache."""
        if self.torn:
            raise RuntimeError(
                "cache: a call was interrupted while it changed this cache, which then holds neither what it held "
                "before nor what it should: clear() it and read the text again"
            )

    def changing(self) -> AbstractContextManager[None]:
        """Around a change that cannot be undone: unless it comes to its end, the cache is torn."""
        return nullcontext() if tracing() else self._changing()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self:
            self.check()
            self.torn = True
            yield
            self.torn = False


def one_thread(cache: object) -> AbstractContextManager[None]:
    """Around a call with a cache, or without one: None. Graphs of a compiler know no threads."""
    guard = None if tracing() else getattr(cache, "_guard", None)
    return nullcontext() if guard is None else guard


def token_axis(kind: int) -> int:
    """Where tokens lie: ``(batch, heads, tokens, ...)``, or ``(batch | 1, tokens, ...)`` for what heads share."""
    return 1 if POSITIONS <= kind <= SEGMENTS else 2


class TokenBuffers:
    """The tensors of one cache, all with as much room, live from ``start`` to ``stop``.

    Args:
        capacity: tokens that there shall ever be room for; None: as many as come, by doubling.
    """

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.held: TokenData = []
        self.start = self.stop = self.room = 0
        self.shared = False  # whether anybody else may hold the same tensors: a copy of the cache, or autograd
        self.guard = Guard()

    def __setstate__(self, state: dict[str, object]) -> None:
        """A copy; nobody may write into tensors that were copied in inference mode."""
        vars(self).update(state)
        self.shared = self.shared or any(t is not None and t.is_inference() for t in self.held)

    def __len__(self) -> int:
        return self.stop - self.start

    def live(self, kind: int) -> Tensor | None:
        """A view of the live tokens of one kind."""
        held = self.held[kind] if kind < len(self.held) else None
        return None if held is None else held.narrow(token_axis(kind), self.start, self.stop - self.start)

    def all_live(self) -> TokenData:
        """Views of the live tokens of all kinds."""
        return [self.live(kind) for kind in range(len(self.held))]

    def write(self, tokens: int, new: TokenData) -> TokenData:
        """Put so many tokens behind the live ones, for which it makes room; views of all.

        They count only once ``stop`` has moved by as many.
        """
        self._reserve(tokens, new)
        start, stop, views = self.start, self.stop, list[Tensor | None]()
        k = new[K]
        at_once = tokens == 1 and k is not None and k.is_cuda and not stand_ins() and self._write_by_kernel(new)
        for kind, held in enumerate(self.held):
            part = new[kind]
            if held is None or part is None:
                views.append(None)
                continue
            axis = 1 if POSITIONS <= kind <= SEGMENTS else 2  # `token_axis`
            if axis == 1 or not at_once:
                held.narrow(axis, stop, tokens).copy_(part)
            views.append(held.narrow(axis, start, stop + tokens - start))
        return views

    def _write_by_kernel(self, new: TokenData) -> bool:
        """Put keys, values and states of one token behind the others in one launch, where a GPU's kernel does that."""
        pairs = [(x, self.held[kind]) for kind, x in enumerate(new) if x is not None and token_axis(kind) == 2]
        if len(pairs) not in (2, 3) or guard.missing(pairs[0][0].device) is not None:
            return False
        learns = torch.is_grad_enabled() and any(x.requires_grad for x, _ in pairs)
        fits = all(h is not None and (h.dtype, h.shape[0]) == (x.dtype, x.shape[0]) for x, h in pairs)
        (k, v, *kept), (held_k, held_v, *held) = zip(*pairs, strict=True)
        state, held_state = (*kept, None)[0], (*held, None)[0]
        if learns or not fits or slots.refuses_write(k, v, state, held_state) is not None:
            return False
        slots.write(self.stop, k, v, state, held_k, held_v, held_state)
        return True

    def replace(self, tokens: TokenData) -> None:
        """Hold these tensors as they are, without spare room; nobody writes into them, not even after a crop."""
        self.held, self.start, self.stop, self.shared = list(tokens), 0, num_tokens(tokens), True
        self.room = self.stop

    def refill(self, tokens: TokenData) -> None:
        """Hold copies of these tensors, in the memory that is there if that has room."""
        self.start = self.stop = 0
        self.write(num_tokens(tokens), tokens)
        self.stop += num_tokens(tokens)

    def drop(self, first: int, last: int, in_place: bool) -> None:
        """Forget live tokens, but for the ``first`` ones and the ``last`` ones."""
        gone = len(self) - first - last
        if first and in_place and not self.shared:
            for kind, held in enumerate(self.held):  # the first ones move up to the others: few, and no new memory
                if held is not None:
                    first_ones = held.narrow(token_axis(kind), self.start, first)
                    target = held.narrow(token_axis(kind), self.start + gone, first)
                    target.copy_(first_ones.clone() if gone < first else first_ones)
        elif first:
            self.replace(first_and_last(self.all_live(), first, last))
            return
        self.start += gone

    def with_rows(self, change: Callable[[Tensor], Tensor]) -> TokenData:
        """Every tensor with its rows replaced by others of them; one row that serves them all stays."""
        rows = max((t.shape[0] for t in self.held if t is not None), default=1)
        learns = torch.is_grad_enabled()
        with torch.inference_mode(False), torch.set_grad_enabled(learns):  # as in `_with_room`
            return [t if t is None or t.shape[0] != rows else change(t) for t in self.held]

    def replace_rows(self, held: TokenData) -> None:
        """Hold what `with_rows` gave."""
        same = any(t is not None and t is old for t, old in zip(held, self.held, strict=True))
        self.held, self.shared = held, self.shared and same

    def replace_from(self, kind: int, first: int, new: Tensor) -> None:
        """Hold other tokens of a kind from the ``first`` live one on, in new memory."""
        old = self.live(kind)
        if old is not None:
            self.add_kind(kind, torch.cat([old.narrow(token_axis(kind), 0, first), new], token_axis(kind)))

    def add_kind(self, kind: int, past: Tensor) -> None:
        """Hold a kind that was not held before, or one row of which served all: ``past`` is what it was so far."""
        room = max(self.room, self.stop)
        buffer = _with_room(past, None, token_axis(kind), room)
        buffer.narrow(token_axis(kind), self.start, len(self)).copy_(past)
        self.held[kind] = buffer

    def _reserve(self, tokens: int, like: TokenData) -> None:
        """Room for more tokens behind the live ones."""
        if self.stop + tokens <= self.room and self.stop and not self.shared:
            return
        if self.stop == 0 and not (len(self.held) == len(like) and all(map(_fits, self.held, like, range(len(like))))):
            self.held, self.room = [], 0  # of an earlier text
        if self.stop + tokens <= self.room and not self.shared:
            return
        needed = len(self) + tokens
        if needed <= self.room and not self.shared and (len(self) <= self.start or self.capacity):
            self._to_the_front()
        else:
            self._allocate(needed, like)

    def _to_the_front(self) -> None:
        with self.guard.changing():
            for kind, held in enumerate(self.held):
                if held is not None:
                    part = held.narrow(token_axis(kind), self.start, len(self))
                    held.narrow(token_axis(kind), 0, len(self)).copy_(part if len(self) <= self.start else part.clone())
            self.start, self.stop = 0, len(self)

    def check(self, needed: int) -> None:
        """Raise a ValueError where there will never be room for as many tokens."""
        if self.capacity is not None and needed > self.capacity:
            raise ValueError(
                f"capacity of this cache is {self.capacity} tokens, but {needed} must be kept: "
                "give a larger one, a window, or none, which grows"
            )

    def _allocate(self, needed: int, like: TokenData) -> None:
        self.check(needed)
        room = max(2 * needed, FEWEST) if self.capacity is None else self.capacity
        old = self.all_live() if len(self) else []
        old += [None] * (len(like) - len(old))
        allocated = [
            None if part is None else _with_room(part, before, token_axis(kind), room)
            for kind, (part, before) in enumerate(zip(like, old, strict=True))
        ]
        self.held, self.room, self.start, self.stop, self.shared = allocated, room, 0, len(self), False


def num_tokens(parts: TokenData) -> int:
    """Tokens of tensors that were put together."""
    k = parts[K]
    return 0 if k is None else k.shape[2]


def concatenated(old: TokenData, new: TokenData) -> TokenData:
    """Both, as new tensors, through which gradients flow."""
    if not old:
        return list(new)
    joined: TokenData = []
    for kind, (a, b) in enumerate(zip(old, new, strict=True)):
        if a is None or b is None:
            joined.append(None)
            continue
        rows = max(a.shape[0], b.shape[0])
        both = [t if t.shape[0] == rows else t.expand(rows, *t.shape[1:]) for t in (a, b)]
        joined.append(torch.cat(both, token_axis(kind)))
    return joined


def _fits(held: Tensor | None, new: Tensor | None, kind: int) -> bool:
    """Whether the memory of an earlier text serves another one."""
    if held is None or new is None:
        return held is new
    sizes = [[*t.shape[: token_axis(kind)], *t.shape[token_axis(kind) + 1 :]] for t in (held, new)]
    return sizes[0] == sizes[1] and (held.dtype, held.device) == (new.dtype, new.device)


def _with_room(like: Tensor, before: Tensor | None, axis: int, room: int) -> Tensor:
    """A new tensor for ``room`` tokens, which begins with the tokens of ``before``."""
    rows = like.shape[0] if before is None else max(like.shape[0], before.shape[0])
    shape = (rows, *like.shape[1:axis], room, *like.shape[axis + 1 :])
    with torch.inference_mode(False):  # a later call may write outside of inference mode, where it must not
        buffer = torch.empty(shape, dtype=like.dtype, device=like.device)
    if before is not None:
        buffer.narrow(axis, 0, before.shape[axis]).copy_(before)
    return buffer


def first_and_last(parts: TokenData, first: int, last: int) -> TokenData:
    """The first and the last tokens, side by side; all where there are not more."""
    tokens = num_tokens(parts)
    if tokens <= first + last:
        return parts
    return [
        None if t is None else _first_and_last(t, token_axis(kind), tokens, first, last) for kind, t in enumerate(parts)
    ]


def _first_and_last(x: Tensor, axis: int, tokens: int, first: int, last: int) -> Tensor:
    end = x.narrow(axis, tokens - last, last)
    return torch.cat([x.narrow(axis, 0, first), end], axis) if first else end
