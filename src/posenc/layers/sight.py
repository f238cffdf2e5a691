"""Which keys the queries of a layer's call see, and at which positions: what is handed to `attention` beside them.

Default positions and windows by index are what `attention` is fastest with. They serve wherever indices tell the
distances of tokens: padding at the ends of rows and forgotten tokens at their start move a row as a whole, which an
encoding by distance does not see. Padding between real tokens, sinks whose neighbours are gone, and encodings that
read where a token is need the positions themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from posenc.backends.inputs.validation import Causal
from posenc.encoding import BiasEncoding, Encoding, ScoreEncoding
from posenc.layers.cache.draft import Draft
from posenc.layers.cache.padded import has_gaps, within
from posenc.layers.cache.static import Slots
from posenc.tracing import tracing


class Sight(NamedTuple):
    """What a call of `attention` is told of positions and visibility."""

    here: Tensor | None  # positions of the queries; None where nobody reads any
    there: Tensor | None  # those of the keys; None: counted
    given: bool  # whether a caller gave them
    attention_mask: Tensor | None  # (batch | 1, keys)
    visible: Tensor | None  # (batch | 1, 1, queries, keys)
    window: int | None  # what is left of the window, by index
    draft: Draft | None = None  # of a cache that grows

    def positions(self, left: Sequence[Encoding], causal: Causal) -> tuple[Tensor | None, Tensor | None]:
        """Of queries and keys, for the encodings that are left to `attention`; None for both: its default."""
        by_position = causal == "positions"
        if self.here is None or not (left or by_position):
            return None, None
        readers = [e for e in left if e.axes]
        if not (readers or by_position):
            return None, None
        if self.there is None and (self.draft is None or self.draft.from_zero):
            return None, None
        if not by_position and not self.given and all(map(_by_distance, readers)) and self._in_order():
            return None, None
        there = self.draft.counted() if self.there is None and self.draft is not None else self.there
        return self.here, there

    def hidden(self, mask: Tensor | None) -> Tensor | None:
        """A caller's mask (checked), padding and the window in one, as `attention` takes it."""
        if mask is None and self.attention_mask is None and self.visible is None:
            return None
        of_keys = None if self.attention_mask is None else self.attention_mask[:, None, None, :]
        parts = [part for part in (mask, of_keys, self.visible) if part is not None]
        together = parts[0]
        for part in parts[1:]:
            together = together & part
        return together

    def _in_order(self) -> bool:
        """Whether distances of positions are those of indices."""
        if self.draft is not None and not self.draft.contiguous:
            return False
        if self.attention_mask is None:
            return True
        if tracing():  # values are not there to be looked at
            return False
        return not has_gaps(self.attention_mask)


def alone(here: Tensor | None, given: bool, attention_mask: Tensor | None, tokens: int, window: int | None) -> Sight:
    """The sight of a call without a cache; ``given``: whether a caller gave the positions."""
    visible = None
    if (
        window is not None
        and attention_mask is not None
        and window < tokens
        and (tracing() or has_gaps(attention_mask))
    ):
        visible, window = within(attention_mask, tokens, window), None
    there = here if given or (here is not None and here.ndim == 2) else None
    return Sight(here, there, given, attention_mask, visible, window)


def beside(here: Tensor | None, draft: Draft) -> Sight:
    """The sight of a call beside a cache."""
    return Sight(here, draft.positions, draft.flags[2], draft.attention_mask, draft.visible, draft.left, draft)


def among_slots(here: Tensor | None, slots: Slots) -> Sight:
    """The sight of a call beside a cache of fixed size."""
    return Sight(here, None if here is None else slots.positions, True, None, slots.visible, slots.window)


def window_is_all(acting: Sequence[Encoding], causal: Causal, given: bool) -> bool:
    """Whether tokens behind a window of indices count for nothing in any later call.

    They do for PaTH, which looks beyond its window for the neighbours of keys, and where an order of given positions,
    rather than of indices, says who sees whom.
    """
    if causal == "positions" and given:
        return False
    modules = [module for encoding in acting for module in encoding.modules()]
    return all(module.scope.by_rows for module in modules if isinstance(module, ScoreEncoding))


def _by_distance(encoding: Encoding) -> bool:
    """Whether an encoding reads nothing of positions but their distance."""
    if not isinstance(encoding, BiasEncoding):
        return False
    device = next((p.device for p in encoding.parameters()), torch.device("cpu"))
    return encoding.of_distance(torch.zeros(1, dtype=torch.int64, device=device)) is not None
