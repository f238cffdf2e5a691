"""PyTorch's fused kernels, fed so that nothing of size length × length is built where that can be avoided.

no bias, plain order      the kernel's own causal flag, or no mask
anything else             blocks of queries, each with its own mask and bias; in training a block is
                          recomputed in the backward pass, so that only one lives at a time
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from posenc.attention.problem import Problem

BLOCK = 512  # queries that share one mask


def refuses(problem: Problem) -> str | None:
    """Why fused kernels cannot serve this problem, or None."""
    if problem.weight is not None:
        return f"{type(problem.weight).__name__} takes the place of softmax, which is inside the kernels"
    if problem.score:
        names = ", ".join(type(encoding).__name__ for encoding, _ in problem.score)
        return f"{names} must see the scores, which never leave the kernels"
    return None


def bare(problem: Problem) -> bool:
    """Whether nothing is added to the scores and the kernel's own flag, or no mask, says who sees whom."""
    if problem.bias or problem.score or problem.weight is not None or problem.masked:
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
    if value_dim != q.shape[-1]:  # unequal widths would leave the fused kernels
        width = max(value_dim, q.shape[-1])
        q, k, v = (F.pad(t, (0, width - t.shape[-1])) for t in (q, k, v))
        problem = problem._replace(q=q, k=k, v=v)
    if bare(problem):
        flag = False
        if problem.causal and q.shape[2] > 1:  # to a compiler their conjunction would be a symbol
            flag = True
        out = F.scaled_dot_product_attention(q, k, v, is_causal=flag, scale=problem.scale, enable_gqa=_grouped(problem))
    else:
        out = _by_blocks(problem)
    return out[..., :value_dim] if out.shape[-1] != value_dim else out


def _square(problem: Problem) -> bool:
    return problem.q.shape[2] == problem.k.shape[2]


def _grouped(problem: Problem) -> bool:
    return problem.q.shape[1] != problem.k.shape[1]


def _by_blocks(problem: Problem) -> Tensor:
    queries = problem.q.shape[2]
    if torch.compiler.is_compiling() or queries <= BLOCK:
        return _block(problem, 0, queries)  # a compiler would unroll the loop anew for each length
    parts = []
    for start in range(0, queries, BLOCK):
        stop = min(start + BLOCK, queries)
        if problem.training:
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
    if unseen is not None:  # nor are its scores any but 0: kernels make nothing finite of huge ones
        q = q.masked_fill(unseen, 0.0)
    out = F.scaled_dot_product_attention(
        q, problem.k, problem.v, attn_mask=added, scale=problem.scale, enable_gqa=_grouped(problem)
    )
    return out if unseen is None else out.masked_fill(unseen, 0.0)
