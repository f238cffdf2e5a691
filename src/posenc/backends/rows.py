"""The definition, a block of queries at a time: for encodings of which nothing is known but that they act row by row.

In training a block is computed anew in the backward pass, so that only one lives at a time.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from posenc.backends import dense
from posenc.backends.derivatives import only_plain_operations
from posenc.backends.inputs.attention_call import Problem
from posenc.backends.inputs.rotation import Spans, part
from posenc.structure import Text
from posenc.tracing import tracing

BLOCK = 64  # queries


def refuses(problem: Problem) -> str | None:
    """Why blocks of queries cannot serve this problem, or None."""
    if tracing():
        return "a compiler would unroll its loop anew for each length"
    transformed = only_plain_operations()
    if transformed is not None:
        return transformed
    if problem.q.shape[2] <= BLOCK:
        return f"at most {BLOCK} queries are one block"
    reason = divided(problem)
    if reason is None and problem.causal is not True and problem.softcap is None and problem.dropout is None:
        return "without a causal order by index no key is spared, and fused kernels serve this call"
    return reason


def divided(problem: Problem) -> str | None:
    """Why queries cannot be looked at some at a time, or None."""
    if problem.causal is not True and (problem.score or problem.weight is not None):
        return "without a causal order by index the queries of a block are not the last of its keys"
    together = [
        type(encoding).__name__ for encoding, _ in problem.score if not (encoding.by_rows or encoding.reads_text)
    ]
    return f"the queries of {together[0]} depend on one another" if together else None


def strategy(problem: Problem) -> str:
    """How this backend goes about the problem, in words."""
    return f"the definition by blocks of {BLOCK} queries, computed anew in the backward pass"


def run(problem: Problem) -> Tensor:
    """Attention block by block, ``(batch, heads, queries, value_dim)`` in the dtype of q.

    The last block comes first: in causal order it sees the most keys, and what it frees has room for the others. Blocks
    that grow fit into nothing that was freed, and the C library's heap would come to hold all of them.
    """
    queries = problem.q.shape[2]
    parts = []
    for start in reversed(range(0, queries, BLOCK)):
        stop = min(start + BLOCK, queries)
        if torch.is_grad_enabled():
            parts.append(checkpoint(_block, problem, start, stop, use_reentrant=False))
        else:
            parts.append(_block(problem, start, stop))
    return torch.cat(parts[::-1], 2)


def _block(problem: Problem, start: int, stop: int) -> Tensor:
    """The results of queries ``start … stop − 1``."""
    return dense.run(block(problem, start, stop))


def block(problem: Problem, start: int, stop: int) -> Problem:
    """The problem of queries ``start … stop − 1`` alone, which `divided` allows.

    In the causal order by index they are the last of the keys that are left, keys 0, 1, … in every case.
    """
    queries, keys = problem.q.shape[2], problem.k.shape[2]
    axis = -1 if problem.axes == 1 else -2
    some = problem._replace(
        q=problem.q[:, :, start:stop],
        places=problem.places.part(start, stop, keys, axis),
        aligned=False,
        content=None if problem.content is None else (problem.content[0][:, :, start:stop], problem.content[1]),
        dropout=None if problem.dropout is None else problem.dropout.after(start),
        spans=_spans(problem, start, stop, keys),
    )
    if problem.causal is not True:  # who sees whom is written out, as the queries' places are lost
        return some._replace(mask=problem.visible(start, stop), segments=None, causal=False, window=None)
    seen = stop + keys - queries
    mask, segments, content, text = problem.mask, problem.segments, some.content, problem.text
    if mask is not None:
        mask = (mask if mask.shape[2] == 1 else mask[:, :, start:stop])[..., :seen]
    return some._replace(
        k=problem.k[:, :, :seen],
        v=problem.v[:, :, :seen],
        places=problem.places.part(start, stop, seen, axis),
        score=tuple((e, f if f is None else f[:, :, :seen]) for e, f in problem.score),
        weight_features=None if problem.weight_features is None else problem.weight_features[:, :, :seen],
        mask=mask,
        segments=None if segments is None else (segments[0][:, start:stop], segments[1][:, :seen]),
        content=None if content is None else (content[0], content[1][:, :, :seen]),
        spans=_spans(problem, start, stop, seen),
        text=None if text is None else Text(None if text.used is None else text.used[:, :seen], text.before[:, :seen]),
    )


def _spans(problem: Problem, start: int, stop: int, seen: int) -> Spans | int | None:
    """What rotations inside score encodings span, of some queries and of the first keys."""
    if not isinstance(problem.spans, Spans):
        return problem.spans
    return Spans(part(problem.spans.of_queries, start, stop), part(problem.spans.of_keys, 0, seen))
