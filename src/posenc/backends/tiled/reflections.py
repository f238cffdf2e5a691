"""Products of reflections, block by block, so that what is left for the tiles are products of matrices: PaTH.

    A_ij = q_i · H_i H_{i−1} … H_{j+1} · k_j,   H_t = I − beta_t · w_t w_tᵀ

A row vector that meets all tokens of a block, the newest first, gives up c = (x · stepsᵀ) · T to them, steps = beta · w
and T the inverse of a unit triangle: the UT transform. So a block is one matrix, I − stepsᵀ T w. Queries are carried to
the start of their own block and keys to the end of theirs; between the two lie whole blocks (`chain`). Scores of
queries and keys of one block are written out, queries × BLOCK numbers.

Source: Yang et al., PaTH Attention, arXiv 2505.16381, the section on products by the UT transform.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

BLOCK = 128  # tokens


class Blocks(NamedTuple):
    """What the tiles need."""

    q: Tensor  # (batch, heads, queries, width), at the start of each query's block
    k: Tensor  # (batch, kv_heads, keys, width), at the end of each key's block
    whole: Tensor  # (batch, kv_heads, blocks, width, width): what a block does to a row vector
    near: Tensor  # (batch, heads, queries, BLOCK): products of queries with the keys of their own blocks


def blocks_of(q: Tensor, k: Tensor, w: Tensor, beta: Tensor) -> Blocks:
    """Queries, keys and blocks for the tiles; differentiable, and computed anew in the backward pass.

    Args:
        q: ``(batch, heads, queries, width)``, of the last keys, in float32 or better.
        k, w: ``(batch, kv_heads, keys, width)``.
        beta: ``(batch, kv_heads, keys)``.
    """
    if torch.compiler.is_compiling():
        return _blocks_of(q, k, w, beta)
    group, found = q.shape[1] // k.shape[1], list[Blocks]()
    for head in range(k.shape[1]):  # so that what a block takes on the way lives for one head at a time
        some = q[:, head * group : (head + 1) * group], *(t[:, head : head + 1] for t in (k, w, beta))
        trained = torch.is_grad_enabled()
        found.append(checkpoint(_blocks_of, *some, use_reentrant=False) if trained else _blocks_of(*some))
    return Blocks(*(torch.cat(parts, 1) for parts in zip(*found, strict=True)))


def _blocks_of(q: Tensor, k: Tensor, w: Tensor, beta: Tensor) -> Blocks:
    queries, keys = q.shape[2], k.shape[2]
    before = keys - queries
    skipped, ahead = before // BLOCK, before % BLOCK  # blocks without queries; tokens of the first one before them
    blocked_k, blocked_w = (_blocked(t, 0) for t in (k, w))
    steps = _blocked(beta.unsqueeze(-1), 0) * blocked_w
    system = (blocked_w @ steps.mT).tril(-1)
    eye = torch.eye(BLOCK, dtype=k.dtype, device=k.device)
    inverse = torch.linalg.solve_triangular(system, eye.expand_as(system), upper=False, unitriangular=True)
    met = (blocked_w @ blocked_k.mT).tril(-1)  # token × key: the tokens after a key
    given = inverse.mT @ steps
    at_ends = blocked_k - met.mT @ given
    whole = torch.eye(k.shape[3], dtype=k.dtype, device=k.device) - given.mT @ blocked_w
    blocked_q = _blocked(q, ahead)
    group = q.shape[1] // k.shape[1]
    k_q, w_q, steps_q, inverse_q, met_q = (
        t[:, :, skipped:].repeat_interleave(group, 1) for t in (blocked_k, blocked_w, steps, inverse, met)
    )
    taken = (blocked_q @ steps_q.mT).tril() @ inverse_q
    near = blocked_q @ k_q.mT - taken @ met_q
    at_starts = blocked_q - taken @ w_q
    rows = slice(ahead, ahead + queries)
    return Blocks(
        at_starts.flatten(2, 3)[:, :, rows], at_ends.flatten(2, 3)[:, :, :keys], whole, near.flatten(2, 3)[:, :, rows]
    )


def _blocked(x: Tensor, ahead: int) -> Tensor:
    """``(batch, heads, tokens, width)`` as ``(batch, heads, blocks, BLOCK, width)``, with zeros around."""
    behind = -(x.shape[2] + ahead) % BLOCK
    padded = F.pad(x, (0, 0, ahead, behind))
    return padded.view(*x.shape[:2], -1, BLOCK, x.shape[3])
