"""The definition, a block of queries at a time: for encodings of which nothing is known but that they act row by row.

In training a block is computed anew in the backward pass, so that only one lives at a time.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from posenc.attention import dense
from posenc.attention.problem import Problem

BLOCK = 64  # queries


def refuses(problem: Problem) -> str | None:
    """Why blocks of queries cannot serve this problem, or None."""
    if problem.causal is not True:
        return "without a causal order by index the queries of a block are not the last of its keys"
    if torch.compiler.is_compiling() or torch.compiler.is_exporting():
        return "a compiler would unroll its loop anew for each length"
    together = [type(encoding).__name__ for encoding, _ in problem.score if not encoding.by_rows]
    if together:
        return f"the queries of {together[0]} depend on one another"
    if problem.q.shape[2] <= BLOCK:
        return f"at most {BLOCK} queries are one block"
    return None


def strategy(problem: Problem) -> str:
    """How this path goes about the problem, in words."""
    return f"the definition by blocks of {BLOCK} queries, computed anew in the backward pass"


def run(problem: Problem) -> Tensor:
    """Attention block by block, ``(batch, heads, queries, value_dim)`` in the dtype of q."""
    queries, keys = problem.q.shape[2], problem.k.shape[2]
    parts = []
    for start in range(0, queries, BLOCK):
        stop = min(start + BLOCK, queries)
        seen = stop + keys - queries
        if seen <= 0:  # queries before the first key
            parts.append(problem.q.new_zeros(*problem.q.shape[:2], stop - start, problem.v.shape[3]))
        elif torch.is_grad_enabled():
            parts.append(checkpoint(_block, problem, start, stop, seen, use_reentrant=False))
        else:
            parts.append(_block(problem, start, stop, seen))
    return torch.cat(parts, 2)


def _block(problem: Problem, start: int, stop: int, seen: int) -> Tensor:
    """Queries ``start … stop − 1`` against keys 0 … seen − 1, of which they are the last."""
    mask, segments, content = problem.mask, problem.segments, problem.content
    if mask is not None:
        mask = (mask if mask.shape[2] == 1 else mask[:, :, start:stop])[..., :seen]
    axis = -1 if problem.axes == 1 else -2
    return dense.run(
        problem._replace(
            q=problem.q[:, :, start:stop],
            k=problem.k[:, :, :seen],
            v=problem.v[:, :, :seen],
            places=problem.places.part(start, stop, seen, axis),
            aligned=False,
            score=tuple((e, f if f is None else f[:, :, :seen]) for e, f in problem.score),
            weight_features=None if problem.weight_features is None else problem.weight_features[:, :, :seen],
            mask=mask,
            segments=None if segments is None else (segments[0][:, start:stop], segments[1][:, :seen]),
            content=None if content is None else (content[0][:, :, start:stop], content[1][:, :, :seen]),
        )
    )
