"""What is done to a score inside FlexAttention's kernel, term by term: functions of one score and its indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from posenc.backends.inputs.visibility import VisibilityMask
from posenc.encoding import softcapped
from posenc.structure import Network

Score = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]  # (score, batch, head, query, key) → score


def summed(terms: list[Score]) -> Score | None:
    """All terms, one after another."""
    if not terms:
        return None

    def score_mod(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        for term in terms:
            score = term(score, b, h, i, j)
        return score

    return score_mod


def capped(softcap: float) -> Score:
    """A cap on the products of queries and keys."""

    def term(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return softcapped(score, softcap)

    return term


def by_distance(row: Tensor, keys: int) -> Score:
    """A function of the distance: n + queries − 1 = i − j + keys − 1."""
    shift = torch.full((), keys - 1, device=row.device)  # a tensor: as a number it would mean a kernel for each length
    shared = row.shape[0] == 1

    def term(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score + row[h * 0 if shared else h, i - j + shift]

    return term


def by_key(values: Tensor) -> Score:
    """A number per head and key."""
    one_row = values.shape[0] == 1
    one_head = values.shape[1] == 1

    def term(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score + values[b * 0 if one_row else b, h * 0 if one_head else h, j]

    return term


class Sums(NamedTuple):
    """Running sums of gates as pairs of float32 (float64 problems: of float64)."""

    of_queries: Tensor  # (batch | 1, heads, queries)
    rest_of_queries: Tensor
    of_keys: Tensor  # (batch | 1, heads, keys)
    rest_of_keys: Tensor


def sums_of(gates: Tensor, queries: int, visibility: VisibilityMask) -> Sums:
    """Sums over each key and all that its document has before it; those of queries at their own key.

    Hidden keys forget nothing. Documents need not lie in one piece: keys are sorted by document for the sum.
    """
    keys, dtype = gates.shape[-1], gates.dtype
    wide = gates.double()
    if visibility.mask is not None:
        wide = wide * visibility.mask[:, :, 0]
    if visibility.segments is None:
        sums = wide.cumsum(-1)
    else:
        order = visibility.segments[1].argsort(dim=-1, stable=True).unsqueeze(1)  # (batch | 1, 1, keys)
        wide = wide.expand(max(len(wide), len(order)), -1, -1)
        order = order.expand(len(wide), wide.shape[1], -1)
        sums = torch.zeros_like(wide).scatter(-1, order, wide.gather(-1, order).cumsum(-1))
    own = torch.arange(keys - queries, keys, device=gates.device).clamp(min=0)
    of_queries = sums.detach()[..., own]
    near, near_keys = of_queries.to(dtype), sums.to(dtype)
    return Sums(
        near, (of_queries - near).to(dtype), near_keys, (sums.detach() - near_keys.detach()).to(dtype)
    )  # fmt: skip


def by_gates(gates: Tensor, queries: int, visibility: VisibilityMask) -> Score:
    """C_i − C_j; each sum is a pair, whose parts are subtracted one by one."""
    of_queries, rest_of_queries, of_keys, rest_of_keys = sums_of(gates, queries, visibility)
    one_row = of_keys.shape[0] == 1
    one_head = of_keys.shape[1] == 1

    def term(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        b, h = b * 0 if one_row else b, h * 0 if one_head else h
        rest = rest_of_queries[b, h, i] - rest_of_keys[b, h, j]
        return score + ((of_queries[b, h, i] - of_keys[b, h, j]) + rest)

    return term


def by_network(network: Network, keys: int) -> Score:
    """The sum over the units written out: a compiler cannot lower a reduction inside a score."""
    by_distance, by_query, inner, inner_bias, outer, outer_bias = (t.detach() for t in network)
    shift = torch.full((), keys - 1, device=by_query.device)
    units = inner.shape[0]

    def term(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        x = by_distance[i - j + shift] * by_query[i]
        total = outer_bias[h]
        for unit in range(units):
            total = total + outer[h, unit] * (inner[unit] * x + inner_bias[unit]).relu()
        return score + total

    return term
