"""`attention_lse`: the log-sum-exp of each query's scores, in memory that grows with the length, not its square."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from posenc.attention import rows
from posenc.attention.blocks import attend_in_blocks, blocks, reach_of
from posenc.attention.options import Causal
from posenc.attention.problem import Problem, pose
from posenc.attention.reading import read_queries
from posenc.attention.transforms import only_plain_operations
from posenc.encoding import Encoding, own_precision
from posenc.making import names_other_words
from posenc.tracing import tracing


@names_other_words
def attention_lse(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encodings: Sequence[Encoding] = (),
    *,
    q_pos: Tensor | None = None,
    k_pos: Tensor | None = None,
    x: Tensor | None = None,
    features: Sequence[Tensor | None] | None = None,
    mask: Tensor | None = None,
    segments: Tensor | tuple[Tensor, Tensor] | None = None,
    causal: Causal | None = None,
    scale: float | None = None,
    length: int | None = None,
    window: int | None = None,
    softcap: float | None = None,
) -> Tensor:
    """The log-sum-exp of each query's scores in a call of `attention` with the same arguments.

    With the result of `attention` it is what `merged` takes, for keys that lie in several shards. Blocks of queries are
    computed one by one, and anew in the backward pass; all of them at once where queries depend on one another (PaTH),
    where an encoding sees scores without a causal order by index, under a compiler and under transforms of torch.func.

    Args:
        q, k, v, encodings, and all keywords: as for `attention`; values are read by few encodings.

    Returns:
        ``(batch, heads, queries)`` in float32 or better, natural, −inf where a query sees no key; differentiable.

    Raises:
        ValueError: for anything that does not fit, and for an encoding in the place of softmax, which has none.

    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> attention_lse(q, k, v).shape
    torch.Size([1, 8, 16])
    """
    with own_precision(q.device.type if isinstance(q, Tensor) else "cpu"):
        problem = pose(
            q, k, v, encodings,
            q_pos=q_pos, k_pos=k_pos, x=x, features=features, mask=mask, segments=segments, causal=causal, scale=scale,
            length=length, window=window, softcap=softcap,
        )  # fmt: skip
        if problem.weight is not None:
            name = type(problem.weight).__name__
            raise ValueError(f"encodings: {name} takes the place of softmax, so that its scores have no log-sum-exp")
        ranges = blocks(problem, reach_of(encodings, q.dtype))
        if len(ranges) == 1:
            return _by_blocks(problem)
        call = partial(
            attention_lse, encodings=encodings, causal=causal, scale=scale, window=window, softcap=softcap
        )  # fmt: skip
        return attend_in_blocks(call, ranges, q, k, v, problem, encodings, length=length, x=x, features=features)


def _by_blocks(problem: Problem) -> Tensor:
    """The log-sum-exp of all queries, ``(batch, heads, queries)``."""
    queries = problem.q.shape[2]
    if queries <= rows.BLOCK or tracing() or only_plain_operations() is not None or rows.divided(problem) is not None:
        return _block(problem, 0, queries)
    parts = []
    for start in range(0, queries, rows.BLOCK):
        stop = min(start + rows.BLOCK, queries)
        if torch.is_grad_enabled():
            parts.append(checkpoint(_block, problem, start, stop, use_reentrant=False))
        else:
            parts.append(_block(problem, start, stop))
    return torch.cat(parts, 2)


def _block(problem: Problem, start: int, stop: int) -> Tensor:
    """The log-sum-exp of queries ``start … stop − 1``."""
    found = read_queries(problem, start, stop).lse
    assert found is not None, "no log-sum-exp of what takes the place of softmax"
    return found
