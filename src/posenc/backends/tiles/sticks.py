"""Blocks of queries under stick-breaking: a chunk of keys at a time, carrying on what is left of each stick.

Logarithms are to base two, because exp2 has no slow range where exp has one. Once what is left in every row of a block
is below the rounding of the weights so far, or below a tolerance, older keys are skipped.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from posenc.backends.tiles.block import (
    LOG2_E,
    SMALLEST,
    BlockOutput,
    Gradients,
    HeadSlice,
    Saved,
    TiledCall,
    add_extra_values,
    descend,
    mask_of,
    scored,
    weights_gradient,
)
from posenc.heads import by_key_head
from posenc.structure import Sticks
from posenc.structure.tile import Tile, suffix_sums, with_zero_tail

FIRST, MOST = 128, 1024  # keys before the first look at what is left, and at most between two looks


class KeyChunk(NamedTuple):
    """What the backward pass needs of one chunk of keys."""

    tile: Tile
    weights: Tensor
    beta: Tensor
    q: Tensor
    saved: Saved


def forward(call: TiledCall, heads: HeadSlice, tile: Tile) -> tuple[Tensor, Tensor]:
    """The block's results, ``(batch, heads, rows, value_dim)``, and −log2 of what is left of the sticks."""
    out: Tensor | None = None
    used: Tensor | None = None
    for chunk in _chunks(call, tile):
        scores, _, _ = scored(call, heads, chunk, mask_of(call, chunk))
        weights, used, _ = _weights(call, scores, used, chunk, keep=False)
        factors = call.dropout_factors(chunk)
        weights = weights if factors is None else weights.mul_(factors)
        read = by_key_head(weights, heads.v[:, chunk.near : chunk.far])
        out = read if out is None else out.add_(read)
        add_extra_values(call, out, weights, chunk)
        if _spent(call, used):
            break
    assert out is not None
    assert used is not None
    left = _left(call, tile, used)
    return out if left is None else out.add_(left * _receivers(call, heads, tile)), used


def backward(
    call: TiledCall,
    heads: HeadSlice,
    tile: Tile,
    known: BlockOutput,
    into: Gradients,
    grad_kv: tuple[Tensor, Tensor],
) -> None:
    """Gather the gradients of a block: from the newest to the oldest key, and back."""
    grad = known.grad
    done, used = _forward_again(call, heads, tile)
    grad_k, grad_v = grad_kv
    behind: Tensor | None = None  # Σ of the gradients of log-weights over all older keys, and over the remainder
    left = _left(call, tile, used)
    if left is not None:
        receivers = _receivers(call, heads, tile)
        behind = left * (grad * receivers).sum(-1, keepdim=True)  # log of what is left: −Σ softplus(score)
        _receivers_gradient(call, tile, grad * left, grad_v)
    for chunk, weights, beta, q, saved in reversed(done):
        grad_logs = weights_gradient(call, heads, chunk, grad, weights, grad_v).mul_(weights)
        # A score raises its own key's weight by 1 − beta and lowers the stick of every older key by beta: its gradient
        # is its own log-weight's minus beta times the sum over its own and all older ones.
        sums = suffix_sums(grad_logs)
        sums = sums if behind is None else sums.add_(behind)
        behind = sums[..., :1].clone()
        target = with_zero_tail(grad_logs) if call.skewed else grad_logs
        grad_scores = torch.addcmul(grad_logs, sums, beta, value=-1, out=target)
        descend(call, heads, chunk, grad_scores, q, saved, into, grad_k)


def _forward_again(call: TiledCall, heads: HeadSlice, tile: Tile) -> tuple[list[KeyChunk], Tensor]:
    """The forward pass of a block, kept."""
    done: list[KeyChunk] = []
    used: Tensor | None = None
    for chunk in _chunks(call, tile):
        scores, q, saved = scored(call, heads, chunk, mask_of(call, chunk), backward=True)
        weights, used, beta = _weights(call, scores, used, chunk, keep=True)
        assert beta is not None
        done.append(KeyChunk(chunk, weights, beta, q, saved))
        if _spent(call, used):
            break
    assert used is not None
    return done, used


def _chunks(call: TiledCall, tile: Tile) -> list[Tile]:
    """A block's keys from the newest on; all at once where some term's own sums run over all of them."""
    if any(term.scans for term in call.terms):
        return [tile]
    chunks, near, size = [], tile.near, FIRST
    while near < tile.far:
        chunks.append(tile._replace(near=near, far=min(near + size, tile.far)))
        near, size = near + size, min(2 * size, MOST)
    return chunks


def _spent(call: TiledCall, used: Tensor) -> bool:
    """Whether all rows have given away what counts of their sticks."""
    return bool((used > -math.log2(call.tolerance)).all())


def _weights(
    call: TiledCall, scores: Tensor, used: Tensor | None, tile: Tile, *, keep: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Weights of a chunk of keys, in place of their scores; −log2 of what is left behind them; betas if kept."""
    if not _sticks(call).attend_current:
        _hide_own(scores, tile)
    beta = scores.sigmoid() if keep else None
    taken = _softplus2(scores.mul_(LOG2_E))
    scores.sub_(taken)  # log2 of the betas, exact, before large sums come in
    total = taken.cumsum(-1)
    if used is not None:
        total.add_(used)
        scores[..., :1].sub_(used)
    scores[..., 1:].sub_(total[..., :-1])
    weights = torch.threshold_(scores, SMALLEST, -math.inf).exp2_()
    return weights, total[..., -1:].clone(), beta


def _sticks(call: TiledCall) -> Sticks:
    assert isinstance(call.weights, Sticks)
    return call.weights


def _left(call: TiledCall, tile: Tile, used: Tensor) -> Tensor | None:
    """What is left of the sticks and given to somebody, ``(batch, heads, rows, 1)``."""
    remainder = _sticks(call).remainder
    if remainder == "drop":
        return None
    left = (-used).exp2()
    own_key = _own_key(tile, left.device)
    dropped = call.dropout_factors(tile, own_key) if remainder == "own" else None  # a weight of the own key
    left = left if dropped is None else left.mul_(dropped)
    if call.visibility.order_only and call.visibility.window is None and tile.queries <= tile.keys:
        return left
    seen = tile.of(call.visibility.rows(tile.start, tile.stop, tile.queries, tile.keys))
    if remainder == "vector":
        return left * seen.any(-1, keepdim=True)
    return left * seen.gather(-1, own_key.clamp(min=0).expand(*seen.shape[:3], 1)) * (own_key >= 0)


def _receivers(call: TiledCall, heads: HeadSlice, tile: Tile) -> Tensor:
    """What the remainder is given to: the own value, or the head's vector."""
    vector = _sticks(call).vector
    if vector is not None:
        return vector[tile.heads].unsqueeze(1)
    own_key = _reversed_own_key(tile, heads.v.device)
    values = heads.v.index_select(1, own_key) + sum(term.own_values() for term in call.terms)
    values = values.repeat_interleave(call.q.shape[1] // call.k.shape[1], 0)
    return values.view(-1, tile.heads.stop - tile.heads.start, *values.shape[1:])


def _receivers_gradient(call: TiledCall, tile: Tile, grad: Tensor, grad_v: Tensor) -> None:
    """Gather the gradient of the receivers."""
    sticks = _sticks(call)
    if sticks.vector is not None:
        sticks.gradients["vector"][tile.heads] += grad.sum((0, 2))
        return
    own_key = _reversed_own_key(tile, grad.device)
    grad_v.index_add_(1, own_key, grad.reshape(grad_v.shape[0], -1, *grad.shape[2:]).sum(1))
    for term in call.terms:
        term.own_values_gradient(grad.sum((0, 1, 2)))


def _own_key(tile: Tile, device: torch.device) -> Tensor:
    """The index of each query's own key in the order of the sequence, ``(rows, 1)``; negative: before the first."""
    return torch.arange(tile.start, tile.stop, device=device)[:, None] + (tile.keys - tile.queries)


def _reversed_own_key(tile: Tile, device: torch.device) -> Tensor:
    """The same in reversed order, ``(rows,)``; those before the first as the first, whose remainder `_left` made 0."""
    return (tile.keys - 1 - _own_key(tile, device))[:, 0].clamp(max=tile.keys - 1)


def _hide_own(scores: Tensor, tile: Tile) -> None:
    """−inf at each query's own key."""
    first = -tile.offset  # column of query 0's own key; query c's lies c columns before
    low, high = max(0, first - tile.columns + 1), min(tile.rows, first + 1)
    if high > low:
        rows = torch.arange(low, high, device=scores.device)
        scores[..., rows, first - rows] = -torch.inf


def _softplus2(x: Tensor) -> Tensor:
    """log2(1 + 2^x), exact for small and for large x."""
    if bool(x.amax() < 60):  # then 2^x is finite in every precision, and log1p costs half of softplus
        return x.exp2().log1p_().mul_(LOG2_E)
    return F.softplus(x, beta=math.log(2.0), threshold=60.0)
