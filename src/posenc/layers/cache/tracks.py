"""What a cache holds of each token: tensors with spare room behind the live tokens, so that a step copies no past.

    held     [ dropped … | start   live tokens   stop | spare room ]

New tokens are written behind ``stop``, where nobody looks until the cache has moved ``stop``; what a window has left
behind lies before ``start``, and once the room is used up the live tokens move to the front. Where gradients may flow
back through the keys, writing in place would change what autograd has kept, and the tensors are put together anew.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

K, V, POSITIONS, PADDING, SEGMENTS, FEATURES = range(6)  # features are the sixth and all that follow
FEWEST = 64  # tokens that a new tensor has room for, at least
Kept = list[Tensor | None]


def axis_of(track: int) -> int:
    """Where tokens lie: ``(batch, heads, tokens, ...)``, or ``(batch | 1, tokens, ...)`` for what heads share."""
    return 1 if POSITIONS <= track <= SEGMENTS else 2


class Tracks:
    """The tensors of one cache, all with as much room, live from ``start`` to ``stop``.

    Args:
        capacity: tokens that there shall ever be room for; None: as many as come, by doubling.
    """

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.held: Kept = []
        self.start = self.stop = self.room = 0
        self.shared = False  # whether a copy of the cache holds the same tensors

    def __len__(self) -> int:
        return self.stop - self.start

    def live(self, track: int) -> Tensor | None:
        """A view of the live tokens of one kind."""
        held = self.held[track] if track < len(self.held) else None
        return None if held is None else held.narrow(axis_of(track), self.start, self.stop - self.start)

    def whole(self) -> Kept:
        """Views of the live tokens of all kinds."""
        return [self.live(track) for track in range(len(self.held))]

    def write(self, new: Kept) -> Kept:
        """Put tokens behind the live ones, for which it makes room; views of all. Nobody sees them before `publish`."""
        tokens = length_of(new)
        self._reserve(tokens, new)
        start, stop, whole = self.start, self.stop, list[Tensor | None]()
        for track, held in enumerate(self.held):
            part = new[track]
            if held is None or part is None:
                whole.append(None)
                continue
            axis = axis_of(track)
            held.narrow(axis, stop, tokens).copy_(part)
            whole.append(held.narrow(axis, start, stop + tokens - start))
        return whole

    def publish(self, tokens: int) -> None:
        """Count tokens that were written among the live ones."""
        self.stop += tokens

    def replace(self, whole: Kept) -> None:
        """Hold these tensors as they are, without spare room."""
        self.held, self.start, self.stop, self.shared = list(whole), 0, length_of(whole), False
        self.room = self.stop

    def refill(self, whole: Kept) -> None:
        """Hold copies of these tensors, in the memory that is there if that has room."""
        self.start = self.stop = 0
        self.write(whole)
        self.publish(length_of(whole))

    def drop(self, first: int, kept: int, in_place: bool) -> None:
        """Forget live tokens, but for the ``first`` ones and the last ``kept``."""
        gone = len(self) - first - kept
        if first and in_place and not self.shared:
            for track, held in enumerate(self.held):  # the first ones move up to the others: few, and no new memory
                if held is not None:
                    few = held.narrow(axis_of(track), self.start, first)
                    target = held.narrow(axis_of(track), self.start + gone, first)
                    target.copy_(few.clone() if gone < first else few)
        elif first:
            self.replace(ends(self.whole(), first, kept))
            return
        self.start += gone

    def change_rows(self, change: Callable[[Tensor], Tensor]) -> None:
        """Replace the rows of every tensor by others of them; one row that serves them all stays."""
        rows = max((t.shape[0] for t in self.held if t is not None), default=1)
        self.held = [None if t is None else change(t) if t.shape[0] == rows else t for t in self.held]
        self.shared = False

    def put(self, track: int, first: int, new: Tensor) -> None:
        """Hold other tokens of a kind from the ``first`` live one on, in new memory."""
        old = self.live(track)
        if old is not None:
            self.begin(track, torch.cat([old.narrow(axis_of(track), 0, first), new], axis_of(track)))

    def begin(self, track: int, past: Tensor) -> None:
        """Hold a kind that was not held before, or one row of which served all: ``past`` is what it was so far."""
        room = max(self.room, self.stop)
        made = _with_room(past, None, axis_of(track), room)
        made.narrow(axis_of(track), self.start, len(self)).copy_(past)
        self.held[track] = made

    def _reserve(self, tokens: int, like: Kept) -> None:
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
        for track, held in enumerate(self.held):
            if held is not None:
                part = held.narrow(axis_of(track), self.start, len(self))
                held.narrow(axis_of(track), 0, len(self)).copy_(part if len(self) <= self.start else part.clone())
        self.start, self.stop = 0, len(self)

    def check(self, needed: int) -> None:
        """Raise a ValueError where there will never be room for as many tokens."""
        if self.capacity is not None and needed > self.capacity:
            raise ValueError(
                f"capacity of this cache is {self.capacity} tokens, but {needed} must be kept: "
                "give a larger one, a window, or none, which grows"
            )

    def _allocate(self, needed: int, like: Kept) -> None:
        self.check(needed)
        room = max(2 * needed, FEWEST) if self.capacity is None else self.capacity
        old = self.whole() if len(self) else []
        old += [None] * (len(like) - len(old))
        made = [
            None if part is None else _with_room(part, before, axis_of(track), room)
            for track, (part, before) in enumerate(zip(like, old, strict=True))
        ]
        self.held, self.room, self.start, self.stop, self.shared = made, room, 0, len(self), False


def length_of(parts: Kept) -> int:
    """Tokens of tensors that were put together."""
    k = parts[K]
    return 0 if k is None else k.shape[2]


def end_to_end(old: Kept, new: Kept) -> Kept:
    """Both, as new tensors, through which gradients flow."""
    if not old:
        return list(new)
    joined: Kept = []
    for track, (a, b) in enumerate(zip(old, new, strict=True)):
        if a is None or b is None:
            joined.append(None)
            continue
        rows = max(a.shape[0], b.shape[0])
        both = [t if t.shape[0] == rows else t.expand(rows, *t.shape[1:]) for t in (a, b)]
        joined.append(torch.cat(both, axis_of(track)))
    return joined


def _fits(held: Tensor | None, new: Tensor | None, track: int) -> bool:
    """Whether the memory of an earlier text serves another one."""
    if held is None or new is None:
        return held is new
    sizes = [[*t.shape[: axis_of(track)], *t.shape[axis_of(track) + 1 :]] for t in (held, new)]
    return sizes[0] == sizes[1] and (held.dtype, held.device) == (new.dtype, new.device)


def _with_room(like: Tensor, before: Tensor | None, axis: int, room: int) -> Tensor:
    """A new tensor for ``room`` tokens, which begins with those of ``before``."""
    rows = like.shape[0] if before is None else max(like.shape[0], before.shape[0])
    shape = (rows, *like.shape[1:axis], room, *like.shape[axis + 1 :])
    with torch.inference_mode(False):  # a later call may write outside of inference mode, where it must not
        made = torch.empty(shape, dtype=like.dtype, device=like.device)
    if before is not None:
        made.narrow(axis, 0, before.shape[axis]).copy_(before)
    return made


def ends(whole: Kept, first: int, last: int) -> Kept:
    """The first and the last tokens, side by side; all where there are not more."""
    tokens = length_of(whole)
    if tokens <= first + last:
        return whole
    return [None if t is None else _ends(t, axis_of(track), tokens, first, last) for track, t in enumerate(whole)]


def _ends(x: Tensor, axis: int, tokens: int, first: int, last: int) -> Tensor:
    end = x.narrow(axis, tokens - last, last)
    return torch.cat([x.narrow(axis, 0, first), end], axis) if first else end
