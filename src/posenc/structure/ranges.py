"""Ranges of distance with rotations of their own, and factors on the logits of a query: what changes q·k itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from posenc.dtypes import float64_if_supported
from posenc.structure.interface import Structure, TileFacts


@dataclass(eq=False)
class Factor(Structure):
    """s_ij ← values_i · s_ij, all that was added before included."""

    values: Tensor  # (batch | 1, heads | 1, queries)

    description = "a factor on the logits of a query"

    def row_factor(self) -> Tensor:
        return self.values

    def tile_refusal(self, encoding: str, facts: TileFacts) -> str | None:
        return f"{encoding} multiplies what is added to the scores before it"


class Range(NamedTuple):
    """Pairs in one range of distances, and the positions to which their queries and keys are rotated."""

    q_pos: Tensor  # (*batch, queries)
    k_pos: Tensor  # (*batch, keys)
    first: int | None  # least distance; None: any, keys after the query included
    last: int | None  # below this; None: any
    until: int | None = None  # only keys at positions below it


@dataclass(eq=False)
class Ranges(Structure):
    """s_ij ← s_ij with R(a_i) q_i · R(b_j) k_j instead of q_i · k_j; the range of a pair (i, j) decides a_i and b_j.

    The distance of two tokens is p_i − p_j, or counts chunks: floor(p_i / chunk) − floor(p_j / chunk). Ranges do not
    overlap. A key outside all ranges is hidden from the query.
    """

    parts: tuple[Range, ...]
    rotate: Callable[[Tensor, Tensor, Tensor | int | None], Tensor]  # x (batch, heads, tokens, width), positions, span
    chunk: int | None = None
    queries: Tensor | None = None  # instead of the call's q, (batch, heads, queries, width)
    keys: Tensor | None = None  # (batch, num_kv_heads, keys, width)
    spans: tuple[Tensor | int | None, Tensor | int | None] = (None, None)  # of queries and of keys, if turning asks

    description = "ranges of distance"

    def tile_refusal(self, encoding: str, facts: TileFacts) -> str | None:
        return f"{encoding} rotates queries and keys anew in each range of distances"

    def holds(self, part: Range, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """Which pairs of tokens at these positions a range has, bool ``(*batch, queries, keys)``."""
        if self.chunk is None:
            fractional = q_pos.is_floating_point() or k_pos.is_floating_point()
            wide = float64_if_supported(q_pos.device) if fractional else torch.int64
            apart = q_pos.to(wide).unsqueeze(-1) - k_pos.to(wide).unsqueeze(-2)
        else:
            q_chunk, k_chunk = (p.div(self.chunk, rounding_mode="floor") for p in (q_pos, k_pos))
            apart = q_chunk.unsqueeze(-1) - k_chunk.unsqueeze(-2)
        held = torch.ones_like(apart, dtype=torch.bool) if part.first is None else apart >= part.first
        if part.last is not None:
            held = held & (apart < part.last)
        return held if part.until is None else held & (k_pos < part.until).unsqueeze(-2)

    @property
    def complete(self) -> bool:
        """Whether every pair is in some range."""
        return self.parts[-1].last is None and all(part.until is None for part in self.parts)
