"""What is done to a cache between calls: rows chosen, tokens forgotten or moved."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch import Tensor

from posenc.arguments import LONGEST, check_whole
from posenc.encoding import Encoding
from posenc.layers.cache.moving import check_movable, rerotate
from posenc.layers.cache.state import CacheState
from posenc.layers.cache.tracks import POSITIONS, K
from posenc.positions import nowhere


class Editable(CacheState):
    """A cache between calls."""

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
        batch = None if self.k is None else self.k.shape[0]
        if rows.dtype == torch.bool:
            if batch is not None and len(rows) != batch:
                raise ValueError(f"rows must be of {batch} rows, got {len(rows)}")
            found = rows.nonzero().flatten()
        else:
            found = rows
            if batch is not None and rows.is_cpu and not bool(((rows >= 0) & (rows < batch)).all()):
                raise ValueError(f"rows must be indices from 0 to {batch - 1}, got {rows.tolist()}")
        self._change_rows(lambda t: t.index_select(0, found.to(t.device)))

    def repeat(self, times: int) -> None:
        """Every row ``times`` times, one after the other."""
        check_whole("times", times)
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
        if isinstance(by, bool) or not isinstance(by, int) or abs(by) > LONGEST:
            raise ValueError(f"by must be an integer, in tokens, got {by!r}")
        positions, k = self.positions, self.k
        if positions is None and self.gap + by < 0:
            raise ValueError(f"by must be at least {-self.gap}, or tokens would come before those that stay, got {by}")
        if self.apart and self.attention_mask is not None:
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

    def clear(self) -> None:
        """Forget everything; what `capacity` has made room for stays."""
        version = self.version
        if self._tracks.capacity is None:
            self._tracks.held, self._tracks.room = [], 0
        self._forget()
        self.version = version + 1

    def __copy__(self) -> Self:
        """A cache that goes on by itself: whichever of the two grows first copies what both have."""
        made = type(self).__new__(type(self))
        vars(made).update(vars(self))
        made._tracks = copy.copy(self._tracks)
        made._tracks.held = list(self._tracks.held)
        self._tracks.shared = made._tracks.shared = True
        return made

    def _change_rows(self, change: Callable[[Tensor], Tensor]) -> None:
        self._tracks.change_rows(change)
        self.last = tuple(change(t) for t in self.last)
        self.version += 1
