"""The definition: scores, biases, score encodings, mask, weights, values, each as a full matrix.

Slow and hungry for memory, and the measure of every other path. Scores and weights are float32 or better.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from posenc.backends.inputs.attention_call import Problem, widen
from posenc.encoding import ScoreEncoding, WeightEncoding, softcapped


def refuses(problem: Problem) -> str | None:
    """Nothing: this backend takes every problem."""
    return None


def strategy(problem: Problem) -> str:
    """How this backend goes about the problem, in words."""
    return "the definition: full matrices of scores and weights"


def run(problem: Problem) -> Tensor:
    """Attention by its definition, ``(batch, heads, queries, value_dim)`` in the dtype of q."""
    dtype, problem = problem.q.dtype, widened(problem)
    scores, mask = scores_of(problem)
    weights = weights_of(problem, scores, mask)
    given = weights if problem.dropout is None else problem.dropout.on(weights)
    out = by_key_head(given, problem.v)
    for encoding, features in problem.score:
        out = _joined(out, encoding, encoding.output(given, problem.context(mask, features)))
    if problem.weight is not None:  # the remainder is that of weights before their dropout
        read = problem.weight.output(weights, problem.context(mask, problem.weight_features))
        out = _joined(out, problem.weight, read)
    return out.to(dtype)


def widened(problem: Problem) -> Problem:
    """The problem in the precision of scores, converted once.

    Encodings that read q and k beside the scores change what these give: their gradients may cancel, and have to meet
    before they are rounded to the dtype of the call.
    """
    content = None if problem.content is None else (widen(problem.content[0]), widen(problem.content[1]))
    return problem._replace(q=widen(problem.q), k=widen(problem.k), v=widen(problem.v), content=content)


def scores_of(problem: Problem) -> tuple[Tensor, Tensor | None]:
    """Scores after all encodings but that of the weights, and who may see whom.

    Returns:
        ``(batch, heads, queries, keys)`` in float32 or better, where hidden keys hold any finite number; and
        ``(batch | 1, heads | 1, queries, keys)`` bool, None = all.
    """
    products = by_key_head(widen(problem.q), widen(problem.k).mT) * problem.scale
    scores = softcapped(products, problem.softcap)
    bias, mask = problem.bias_of(), problem.visible()
    if bias is not None:
        scores = scores + bias
    for encoding, features in problem.score:
        scores = encoding(scores, problem.context(mask, features))
    return scores, mask


def weights_of(problem: Problem, scores: Tensor, mask: Tensor | None) -> Tensor:
    """What `scores_of` gave as weights: by softmax, or what takes its place; no dropout."""
    if problem.weight is None:
        return softmax(scores, mask)
    weights: Tensor = problem.weight(scores, problem.context(mask, problem.weight_features))
    return weights


def _joined(out: Tensor, reader: ScoreEncoding | WeightEncoding, read: Tensor | None) -> Tensor:
    """The results with what an encoding read beside v."""
    if read is not None and read.shape != out.shape:
        name, width = type(reader).__name__, read.shape[-1]
        raise ValueError(f"value_dim of {name} is {width}, but v has width {out.shape[-1]}")
    return out if read is None else out + read


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
