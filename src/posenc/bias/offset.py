"""Helper class for biases between tokens on a grid: b(h, p_query − p_key) is written once, for all coordinates.

On a grid few differences are distinct, (2H − 1)(2W − 1) of them between (H·W)² pairs: the bias is computed for these
alone, and each pair looks its own up. Where positions may not be looked at, under a compiler, each pair computes it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from posenc.encoding import BiasEncoding
from posenc.positions import checking as position
from posenc.structure import Offsets
from posenc.tracing import tracing

MANY = 2**12  # pairs from which distinct differences are looked for
REPEATED = 4  # pairs for each distinct difference from which looking them up pays


class OffsetBias(BiasEncoding):
    """A bias b_h(p_query − p_key) of differences of coordinates. Subclasses write `of_offset`; the rest follows.

    A token without a place (`posenc.positions.NO_POSITION`) differs from no other by a number: see `at_no_position`.
    """

    def of_offset(self, offset: Tensor) -> Tensor:
        """The bias ``(heads, ...)`` for differences ``p_query − p_key`` of coordinates ``(..., axes)``."""
        raise NotImplementedError

    def at_no_position(self) -> Tensor | None:
        """The bias ``(heads, 3)`` from tokens without a place, to them, and between two of them; None: 0."""
        return None

    def of_distance(self, distance: Tensor) -> Tensor | None:
        """Structure: along one axis, a function of the distance."""
        return None if self.axes > 1 else self.of_offset(-position.wide(distance).unsqueeze(-1))

    def offsets(self, q_pos: Tensor, k_pos: Tensor) -> Offsets | None:
        """Structure: the bias of each difference on the grid that positions span, and where a pair finds its own."""
        (q_pos, q_unplaced), (k_pos, k_unplaced) = self._placed("q_pos", q_pos), self._placed("k_pos", k_pos)
        if q_pos.ndim != 2 or k_pos.ndim != 2 or not _worth_reading(q_pos, k_pos):
            return None
        if not all(_is_whole(p) for p in (q_pos, k_pos)) or bool(q_unplaced.all()) or bool(k_unplaced.all()):
            return None
        low = torch.stack([q_pos[~q_unplaced].amin(0), k_pos[~k_unplaced].amin(0)])
        high = torch.stack([q_pos[~q_unplaced].amax(0), k_pos[~k_unplaced].amax(0)])
        sizes = [int(size) for size in (high - low).sum(0) + 1]  # differences along each axis
        entries = math.prod(sizes)
        if entries * REPEATED > _pairs(q_pos, k_pos):
            return None
        steps = q_pos.new_tensor([math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]).long()
        query_index, key_index = ((p.long() * steps).sum(-1) for p in (q_pos - low[0], high[1] - k_pos))
        digits = torch.arange(entries, device=q_pos.device).unsqueeze(-1) // steps % torch.tensor(sizes).to(steps)
        values = self.of_offset(digits.to(q_pos.dtype) + (low[0] - high[1]))
        if not bool(q_unplaced.any() | k_unplaced.any()):
            return Offsets(values, query_index, key_index)
        return _with_unplaced(Offsets(values, query_index, key_index), self.at_no_position(), q_unplaced, k_unplaced)

    def forward(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        (q_pos, q_unplaced), (k_pos, k_unplaced) = self._placed("q_pos", q_pos), self._placed("k_pos", k_pos)
        if _worth_reading(q_pos, k_pos):
            bias = self._of_distinct(q_pos, k_pos, q_unplaced, k_unplaced)
        else:
            bias = self._of_pairs(q_pos, k_pos, q_unplaced.unsqueeze(-1), k_unplaced.unsqueeze(-2))
        return bias.movedim(0, -3)  # (*batch, heads, queries, keys)

    def _of_distinct(self, q_pos: Tensor, k_pos: Tensor, q_unplaced: Tensor, k_unplaced: Tensor) -> Tensor:
        """The bias ``(heads, *batch, queries, keys)``, computed for each difference, if pairs have many in common."""
        lost = bool(q_unplaced.any()) or bool(k_unplaced.any())
        if lost:  # whoever has no place stands where somebody else does, so that there are no more differences for it
            spot = torch.cat([q_pos[~q_unplaced], k_pos[~k_unplaced], q_pos.flatten(0, -2)[:1]])[0]
            q_pos, k_pos = (
                torch.where(q_unplaced[..., None], spot, q_pos),
                torch.where(k_unplaced[..., None], spot, k_pos),
            )
        differences = distinct(q_pos, k_pos)
        if differences is None:
            return self._of_pairs(q_pos, k_pos, q_unplaced.unsqueeze(-1), k_unplaced.unsqueeze(-2))
        offset, index = differences
        bias = self.of_offset(offset)
        if lost:
            unplaced = self.at_no_position()
            unplaced = bias.new_zeros(self.num_heads, 3) if unplaced is None else unplaced.to(bias.dtype)
            bias = torch.cat([bias, unplaced], 1)
            kind = (
                q_unplaced.unsqueeze(-1) + 2 * k_unplaced.unsqueeze(-2).int()
            )  # 1: the query is lost, 2: the key, 3: both
            index = torch.where(kind > 0, len(offset) - 1 + kind, index)
        return bias.contiguous().index_select(1, index.flatten()).view(-1, *index.shape)

    def _of_pairs(self, q_pos: Tensor, k_pos: Tensor, q_unplaced: Tensor, k_unplaced: Tensor) -> Tensor:
        """The bias ``(heads, *batch, queries, keys)``, computed for each pair."""
        bias, unplaced = self.of_offset(q_pos.unsqueeze(-2) - k_pos.unsqueeze(-3)), self.at_no_position()
        if unplaced is None:
            return bias.masked_fill(q_unplaced | k_unplaced, 0.0)
        there, here, both = unplaced.to(bias.dtype).view(-1, 3, *[1] * (bias.ndim - 1)).unbind(1)
        return torch.where(q_unplaced, torch.where(k_unplaced, both, there), torch.where(k_unplaced, here, bias))

    def _placed(self, name: str, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Coordinates ``(*batch, tokens, axes)``, checked, 0 where there is no place; and where that is."""
        position.check_dtype(name, positions)
        if self.axes > 1 and (positions.ndim < 2 or positions.shape[-1] != self.axes):
            raise ValueError(f"{name} must be (*batch, tokens, {self.axes}), got {tuple(positions.shape)}")
        lost = position.has_no_position(positions, self.axes)
        coordinates = position.wide(positions if self.axes > 1 else positions.unsqueeze(-1))
        return coordinates.masked_fill(lost.unsqueeze(-1), 0), lost


def _with_unplaced(placed: Offsets, unplaced: Tensor | None, q_unplaced: Tensor, k_unplaced: Tensor) -> Offsets:
    """The same with tokens without a place, whose sums with any others fall behind the numbers of the places."""
    values, query_index, key_index = placed.values, placed.query_index, placed.key_index
    entries, keys = values.shape[1], int(key_index.amax()) + 1
    queries = int(query_index.amax()) + 1
    unplaced = values.new_zeros(len(values), 3) if unplaced is None else unplaced.to(values.dtype)
    # An index is a sum query + key. Queries without a place start behind all sums of placed ones, keys without one
    # behind all that such a query reads; so the three kinds of pairs fall into three parts that cannot meet.
    unplaced_key = entries + keys  # behind what a lost query reads at any key
    there, here, both = (number.unsqueeze(1) for number in unplaced.unbind(1))
    unread = values.new_zeros(len(values), max(0, entries - queries))
    parts = [values, there.expand(-1, keys), here.expand(-1, queries), unread, both]
    query_index, key_index = (
        query_index.masked_fill(q_unplaced, entries),
        key_index.masked_fill(k_unplaced, unplaced_key),
    )
    return Offsets(torch.cat(parts, 1), query_index, key_index)


def _is_whole(positions: Tensor) -> bool:
    """Whether coordinates are whole numbers."""
    return not positions.is_floating_point() or bool((positions == positions.round()).all())


def distinct(q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor] | None:
    """The differences of all pairs with few repetitions, found axis by axis.

    Args:
        q_pos, k_pos: coordinates ``(*batch, tokens, axes)``.

    Returns:
        Differences ``p_query − p_key`` ``(number, axes)``, and which of them each pair has, int32
        ``(*batch, queries, keys)``; None where pairs have few in common. Nothing is rounded: equal steps between
        fractions that differ in their last digits stay two differences.

    >>> line = torch.arange(9).unsqueeze(-1)
    >>> offset, index = distinct(line, line)
    >>> len(offset), offset[index[7, 2]]
    (17, tensor([5]))
    """
    pairs = _pairs(q_pos, k_pos)
    offset, index = q_pos.new_zeros(1, 0), torch.zeros((), dtype=torch.int32, device=q_pos.device)
    for q_axis, k_axis in zip(q_pos.unbind(-1), k_pos.unbind(-1), strict=True):
        here, query = torch.unique(q_axis, return_inverse=True)
        there, key = torch.unique(k_axis, return_inverse=True)
        along_axis = _along_one_axis(here, there, pairs // REPEATED)
        if along_axis is None or len(offset) * len(along_axis[0]) * REPEATED > pairs:
            return None
        apart, which = along_axis
        offset = torch.cat([offset.repeat_interleave(len(apart), 0), apart.repeat(len(offset)).unsqueeze(-1)], -1)
        rows, key = which[query], key.unsqueeze(-2)  # (*batch, queries, coordinates of keys)
        batch = torch.broadcast_shapes(rows.shape[:-2], key.shape[:-2])  # type: ignore[no-untyped-call]
        key = key.expand(*batch, rows.shape[-2], -1)
        index = index * len(apart) + rows.expand(*batch, -1, -1).gather(-1, key)
    return offset, index


def _along_one_axis(here: Tensor, there: Tensor, most: int) -> tuple[Tensor, Tensor] | None:
    """The differences of two sorted lists, and which of them each pair has, int32 ``(len(here), len(there))``.

    None where there are more than ``most``, or where it would take longer to see that there are not.
    """
    apart = here.unsqueeze(-1) - there
    if not apart.is_floating_point() or bool((apart == apart.round()).all()):
        first, last = apart[0, -1], apart[-1, 0]
        number = int(last - first) + 1
        if number <= most:  # of whole numbers, all that lie in between
            return first + torch.arange(number, device=apart.device).to(apart.dtype), (apart - first).int()
    if apart.numel() > most:
        return None
    values, which = torch.unique(apart, return_inverse=True)
    return values, which.int()


def _worth_reading(q_pos: Tensor, k_pos: Tensor) -> bool:
    """Whether there are many pairs, the values of their positions may be looked at, and nobody wants their gradient."""
    if tracing():
        return False
    if any(type(p) is not Tensor or p.device.type == "meta" or p.requires_grad for p in (q_pos, k_pos)):
        return False
    if q_pos.is_cuda and torch.cuda.is_current_stream_capturing():
        return False
    return _pairs(q_pos, k_pos) >= MANY


def _pairs(q_pos: Tensor, k_pos: Tensor) -> int:
    """Pairs of a query and a key, in all rows."""
    return max(q_pos[..., 0].numel() * k_pos.shape[-2], q_pos.shape[-2] * k_pos[..., 0].numel())
