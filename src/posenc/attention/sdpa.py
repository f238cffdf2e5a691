"""PyTorch's fused kernels, fed so that nothing of size length × length is built where that can be avoided.

no bias, plain order      the kernel's own causal flag, or no mask
anything else             blocks of queries, each with its own mask and bias; in training a block is
                          recomputed in the backward pass, so that only one lives at a time

Kernels that hide keys before they multiply by the scale give NaN where that is not positive: its sign goes to the
queries. Dropout is that of the kernels, with masks of their own; those for CPU have none.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from posenc.attention.problem import Problem
from posenc.attention.transforms import beyond_fused_kernels, only_plain_operations

BLOCK = 512  # queries that share one mask


def refuses(problem: Problem) -> str | None:
    """Why fused kernels should not serve this problem, or None."""
    if problem.dropout is not None and not problem.q.is_cuda:
        return "off a GPU it builds every score of a call with dropout"
    return refuses_by_name(problem)


def refuses_by_name(problem: Problem) -> str | None:
    """Why fused kernels cannot serve this problem even where they were asked for by name, or None."""
    if problem.weight is not None:
        return f"{type(problem.weight).__name__} takes the place of softmax, which is inside the kernels"
    if problem.score:
        names = ", ".join(type(encoding).__name__ for encoding, _ in problem.score)
        return f"{names} must see the scores, which never leave the kernels"
    if problem.softcap is not None:
        return "softcap changes the scores, which never leave the kernels"
    if problem.dropout is not None and problem.dropout.p == 1:
        return "kernels divide by what dropout leaves, which is nothing"
    if problem.bias and only_plain_operations() is not None:  # they would not see that a bias wants gradients
        return only_plain_operations()
    return beyond_fused_kernels(problem.q, problem.k, problem.v)


def bare(problem: Problem) -> bool:
    """Whether nothing is added to the scores and the kernel's own flag, or no mask, says who sees whom."""
    if problem.bias or problem.score or problem.weight is not None or problem.masked or problem.softcap is not None:
        return False
    return not problem.causal or problem.q.shape[2] == 1 or _square(problem)


def strategy(problem: Problem) -> str:
    """How this path goes about the problem, in words."""
    if bare(problem):
        return "causal flag of the kernel" if problem.causal and problem.q.shape[2] > 1 else "no mask"
    return f"mask and bias by blocks of {BLOCK} queries"


def run(problem: Problem) -> Tensor:
    """Attention by fused kernels, ``(batch, heads, queries, value_dim)``."""
    q, k, v = problem.q, problem.k, problem.v
    value_dim = v.shape[-1]
    if problem.scale <= 0:
        q = q * (-1.0 if problem.scale < 0 else 0.0)
        problem = problem._replace(q=q, scale=-problem.scale or 1.0)
    if value_dim != q.shape[-1]:  # unequal widths would leave the fused kernels
        width = max(value_dim, q.shape[-1])
        q, k, v = (F.pad(t, (0, width - t.shape[-1])) for t in (q, k, v))
        problem = problem._replace(q=q, k=k, v=v)
    if bare(problem):
        flag = False
        if problem.causal and q.shape[2] > 1:  # to a compiler their conjunction would be a symbol
            flag = True
        out = F.scaled_dot_product_attention(
            q, k, v, dropout_p=_dropped(problem), is_causal=flag, scale=problem.scale, enable_gqa=_grouped(problem)
        )
    else:
        out = _by_blocks(problem)
    return out[..., :value_dim] if out.shape[-1] != value_dim else out


def _square(problem: Problem) -> bool:
    return problem.q.shape[2] == problem.k.shape[2]


def _grouped(problem: Problem) -> bool:
    return problem.q.shape[1] != problem.k.shape[1]


def _dropped(problem: Problem) -> float:
    return 0.0 if problem.dropout is None else problem.dropout.p


def _by_blocks(problem: Problem) -> Tensor:
    queries = problem.q.shape[2]
    if torch.compiler.is_compiling() or queries <= BLOCK:
        return _block(problem, 0, queries)  # a compiler would unroll the loop anew for each length
    parts = []
    for start in range(0, queries, BLOCK):
        stop = min(start + BLOCK, queries)
        if problem.training and only_plain_operations() is None:
            parts.append(checkpoint(_block, problem, start, stop, use_reentrant=False))
        else:
            parts.append(_block(problem, start, stop))
    return torch.cat(parts, 2)


def _block(problem: Problem, start: int, stop: int) -> Tensor:
    """Queries ``start … stop − 1`` against all keys."""
    bias, mask = problem.bias_of(start, stop), problem.visible(start, stop)
    added, unseen = bias, None
    if mask is not None:
        unseen = ~mask.any(-1, keepdim=True)
        mask = mask | unseen  # a row without keys looks everywhere, and its result is put to zero below
        added = mask if bias is None else bias.masked_fill(~mask, -math.inf)
    q = problem.q[:, :, start:stop]
    out = F.scaled_dot_product_attention(
        q, problem.k, problem.v,
        attn_mask=added, dropout_p=_dropped(problem), scale=problem.scale, enable_gqa=_grouped(problem),
    )  # fmt: skip
    return out if unseen is None else out.masked_fill(unseen, 0.0)
