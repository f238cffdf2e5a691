"""Attention maps and log-sum-exps: what a call of `attention` computes inside, for figures, losses and tests.

`read_attention` evaluates the definition (`dense.scores_of`, `dense.weights_of`), whichever backend a call would take:
full matrices, or the rows of some queries, so that a long sequence can be inspected row by row. `attention_lse` gives
the log-sum-exp of each query's logits in memory that grows with the length, not its square.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posenc.arguments import shown
from posenc.backends import dense, rows
from posenc.backends.derivatives import only_plain_operations
from posenc.call import AttentionCall, AttentionOptions, prepare_call
from posenc.encoding import Encoding, ScoreEncoding, no_autocast
from posenc.tracing import tracing
from posenc.validate import as_list, suggests_argument_names

__all__ = ["attention_lse", "read_attention"]


class Reading(NamedTuple):
    """What one call computes, in float32 or better; differentiable."""

    scores: Tensor  # (batch, heads, queries, keys), after all encodings; −inf at hidden keys
    weights: Tensor  # (batch, heads, queries, keys), before any dropout; a row without visible keys is 0
    lse: Tensor | None  # (batch, heads, queries): log Σ exp(scores); None where softmax has been replaced


@suggests_argument_names
def read_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor | None = None,
    encodings: Iterable[nn.Module] = (),
    *,
    queries: slice | None = None,
    **options: Unpack[AttentionOptions],
) -> Reading:
    """Return the scores, weights and log-sum-exp of an `attention` call with the same arguments.

    Args:
        q, k: as for `attention`.
        v: only for encodings whose scores read values (CoPE's ``gates="values"``); any width, and None for all others.
        encodings: any list, as for `attention`.
        queries: which queries to read, a slice without a step; default all of them. The others are not computed, unless
            queries depend on one another (PaTH) or an encoding reads scores without a causal order by index.
        options: the other keywords of `attention`.

    Returns:
        A `Reading`. ``weights @ v`` is the call's result, except for what encodings add to it (Shaw's values, the
        vector of stick-breaking).

    Raises:
        ValueError: for anything that does not fit; the message names the argument.

    >>> from posenc import ALiBi
    >>> q, k = torch.randn(2, 1, 8, 16, 64)
    >>> read = read_attention(q, k, encodings=[ALiBi(8)])
    >>> read.weights.shape, torch.allclose(read.weights.sum(-1), torch.ones(()))
    (torch.Size([1, 8, 16, 16]), True)
    >>> read_attention(q, k, encodings=[ALiBi(8)], queries=slice(-1, None)).scores.shape
    torch.Size([1, 8, 1, 16])
    """
    listing = as_list(encodings)
    v = _unread(k, listing) if v is None else v
    with no_autocast(q.device.type if isinstance(q, Tensor) else "cpu"):
        call = prepare_call(q, k, v, listing, **options)
        return read_queries(call, *check_range(queries, q.shape[2]))


def read_queries(call: AttentionCall, start: int, stop: int) -> Reading:
    """The reading of queries ``start … stop − 1`` of a call."""
    keys, part, cut = call.k.shape[2], call, slice(start, stop)
    if (start, stop) != (0, call.q.shape[2]) and rows.divided(call) is None:
        part, cut = rows.block(call, start, stop), slice(None)
    part = part.widened()
    scores, mask = dense.scores_of(part)
    weights = dense.weights_of(part, scores, mask)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    lse = None if part.weight is not None else _log_sum_exp(scores)[:, :, cut]
    return _of_all_keys(Reading(scores[:, :, cut], weights[:, :, cut], lse), keys)


def check_range(queries: slice | None, count: int) -> tuple[int, int]:
    """First and last + 1 of the queries to read; a ValueError where they do not form a range."""
    if queries is None:
        return 0, count
    if not isinstance(queries, slice) or queries.step not in (None, 1):
        raise ValueError(f"queries must be a slice without a step, such as slice(-10, None), got {shown(queries)}")
    start, stop, _ = queries.indices(count)
    if stop <= start:
        raise ValueError(f"queries must hold at least one of the {count} queries, got {shown(queries)}")
    return start, stop


def _unread(k: Tensor, encodings: Sequence[Encoding]) -> Tensor:
    """Instead of values that nobody reads: NaN, so that an encoding which reads them undeclared is seen at once."""
    for encoding in as_list(encodings):
        if isinstance(encoding, ScoreEncoding) and encoding.reads.values:
            raise ValueError(f"v must be given: the scores of {type(encoding).__name__} read it")
    if not isinstance(k, Tensor) or k.ndim == 0:
        return k  # the checks of all calls say what is wrong with it
    return torch.full_like(k[..., :1], math.nan).detach()


def _of_all_keys(read: Reading, keys: int) -> Reading:
    """A reading of the first keys with the others, which are hidden."""
    hidden = keys - read.scores.shape[-1]
    if hidden == 0:
        return read
    return Reading(F.pad(read.scores, (0, hidden), value=-math.inf), F.pad(read.weights, (0, hidden)), read.lse)


def _log_sum_exp(scores: Tensor) -> Tensor:
    """log Σ exp(scores) over the last axis; −inf, with a gradient of 0, where all of them are −inf."""
    unseen = (scores == -math.inf).all(-1)
    return scores.masked_fill(unseen.unsqueeze(-1), 0.0).logsumexp(-1).masked_fill(unseen, -math.inf)


@suggests_argument_names
def attention_lse(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encodings: Iterable[nn.Module] = (),
    **options: Unpack[AttentionOptions],
) -> Tensor:
    """The log-sum-exp of each query's scores in a call of `attention` with the same arguments.

    With the result of `attention` it is what `posenc.distributed.merged` takes, for keys that lie in several
    shards. Blocks of queries are computed one by one, and anew in the backward pass; all of them at once where queries
    depend on one another (PaTH), where an encoding reads scores without a causal order by index, under a compiler and
    under transforms of torch.func.

    Args:
        q, k, v, encodings, options: as for `attention`; values are read by few encodings.

    Returns:
        ``(batch, heads, queries)`` in float32 or better, natural, −inf where a query attends to no key; differentiable.

    Raises:
        ValueError: for anything that does not fit, and for an encoding instead of softmax, which has none.

    >>> q, k, v = torch.randn(3, 1, 8, 16, 64)
    >>> attention_lse(q, k, v).shape
    torch.Size([1, 8, 16])
    """
    listing = as_list(encodings)
    with no_autocast(q.device.type if isinstance(q, Tensor) else "cpu"):
        call = prepare_call(q, k, v, listing, **options)
        if call.weight is not None:
            name = type(call.weight).__name__
            raise ValueError(f"encodings: {name} replaces softmax, so that its scores have no log-sum-exp")
        return _by_blocks(call)


def _by_blocks(call: AttentionCall) -> Tensor:
    """The log-sum-exp of all queries, ``(batch, heads, queries)``."""
    queries = call.q.shape[2]
    if queries <= rows.BLOCK or tracing() or only_plain_operations(call) is not None or rows.divided(call) is not None:
        return _block(call, 0, queries)
    return rows.by_blocks(call, rows.BLOCK, _block, anew=torch.is_grad_enabled())


def _block(call: AttentionCall, start: int, stop: int) -> Tensor:
    """The log-sum-exp of queries ``start … stop − 1``."""
    lse = read_queries(call, start, stop).lse
    assert lse is not None, "no log-sum-exp of what replaces softmax"
    return lse
