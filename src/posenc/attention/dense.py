"""The definition: scores, biases, score encodings, mask, weights, values, each as a full matrix.

Slow and hungry for memory, and the measure of every other path. Scores and weights are float32 or better.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from posenc.attention.problem import Problem, widen
from posenc.encoding import ScoreEncoding, WeightEncoding


def refuses(problem: Problem) -> str | None:
    """Nothing: this path takes every problem."""
    return None


def strategy(problem: Problem) -> str:
    """How this path goes about the problem, in words."""
    return "the definition: full matrices of scores and weights"


def run(problem: Problem) -> Tensor:
    """Attention by its definition, ``(batch, heads, queries, value_dim)`` in the dtype of q."""
    q, k, v = widen(problem.q), widen(problem.k), widen(problem.v)
    scores = by_key_head(q, k.mT) * problem.scale
    bias, mask = problem.bias_of(), problem.visible()
    if bias is not None:
        scores = scores + bias
    for encoding, features in problem.score:
        scores = encoding(scores, problem.context(mask, features))
    if problem.weight is not None:
        weights: Tensor = problem.weight(scores, problem.context(mask, problem.weight_features))
    else:
        weights = softmax(scores, mask)
    out = by_key_head(weights, v)
    readers: list[tuple[ScoreEncoding | WeightEncoding, Tensor | None]] = [*problem.score]
    if problem.weight is not None:
        readers.append((problem.weight, problem.weight_features))
    for reader, features in readers:
        read = reader.output(weights, problem.context(mask, features))
        if read is not None and read.shape != out.shape:
            name, width = type(reader).__name__, read.shape[-1]
            raise ValueError(f"value_dim of {name} is {width}, but v has width {v.shape[-1]}")
        out = out if read is None else out + read
    return out.to(problem.q.dtype)


def by_key_head(rows: Tensor, per_key_head: Tensor) -> Tensor:
    """The product of what query heads have, ``(batch, heads, m, n)``, with what their key heads have.

    Groups of query heads stand on an axis of their own and key heads are broadcast along it: folding a group into the
    rows instead would spare copies, but exporters cannot follow it at every length.
    """
    kv_heads = per_key_head.shape[1]
    grouped = rows.view(rows.shape[0], kv_heads, rows.shape[1] // kv_heads, *rows.shape[2:])
    return (grouped @ per_key_head.unsqueeze(2)).flatten(1, 2)


def softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Weights over the visible keys; a row without any gets zeros, and zero gradients, in the place of NaN."""
    if mask is None:
        return scores.softmax(-1)
    seen = mask.any(-1, keepdim=True)
    scores = scores.masked_fill(~mask & seen, -math.inf)  # an unseen row keeps its finite scores until it is zeroed
    return torch.where(seen, scores.softmax(-1), torch.zeros_like(scores))
