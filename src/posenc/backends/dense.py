"""The definition: scores, biases, score encodings, mask, weights, values, each as a full matrix.

Slow, with quadratic memory; every other backend is tested against it. Scores and weights are float32 or better.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from posenc.call import AttentionCall
from posenc.dtypes import widened
from posenc.encoding import ScoreEncoding, WeightEncoding, softcapped
from posenc.heads import by_key_head
from posenc.validate import lacking_token_state


def refuses(call: AttentionCall) -> str | None:
    """Nothing: this backend takes every call."""
    return None


def strategy(call: AttentionCall) -> str:
    """How this backend goes about the call, in words."""
    return "the definition: full matrices of scores and weights"


def run(call: AttentionCall) -> Tensor:
    """Attention by its definition, ``(batch, heads, queries, value_dim)`` in the dtype of q."""
    dtype = call.q.dtype
    readers: list[ScoreEncoding | WeightEncoding] = [*call.score, *([] if call.weight is None else [call.weight])]
    if call.training or any(_reads_tensors(encoding) for encoding in readers):
        call = call.widened()  # elsewhere `by_key_head` widens keys and values some heads at a time
    scores, mask = scores_of(call)
    weights = weights_of(call, scores, mask)
    dropped = weights if call.dropout is None else call.dropout.on(weights)
    out = by_key_head(dropped, call.v)
    for encoding, token_states in call.score_with_states:
        if type(encoding).output is not ScoreEncoding.output:  # asked first, as a context costs as much as a product
            out = _joined(out, encoding, encoding.output(dropped, call.context(mask, token_states)))
    if call.weight is not None:  # the remainder belongs to weights before their dropout
        read = call.weight.output(weights, call.context(mask, call.weight_state))
        out = _joined(out, call.weight, read)
    return out.to(dtype)


def _reads_tensors(encoding: ScoreEncoding | WeightEncoding) -> bool:
    """Whether an encoding reads queries, keys or values in addition to the scores."""
    reads = encoding.reads
    return reads.rotated or reads.unrotated or reads.products or reads.values


def scores_of(call: AttentionCall) -> tuple[Tensor, Tensor | None]:
    """Scores after all encodings but the weight encoding, and which keys each query attends to.

    Returns:
        ``(batch, heads, queries, keys)`` in float32 or better, where hidden keys hold any finite number; and
        ``(batch | 1, heads | 1, queries, keys)`` bool, None = all.
    """
    products = by_key_head(widened(call.q), call.k.mT) * call.scale
    scores = softcapped(products, call.softcap)
    bias, mask = call.bias_of(), call.visible()
    if bias is not None:
        scores = scores + bias
    for encoding, token_states in call.score_with_states:
        try:
            scores = encoding(scores, call.context(mask, token_states))
        except (AttributeError, TypeError) as error:
            missing = lacking_token_state(encoding, token_states)
            if missing is None:
                raise
            raise missing from error
    return scores, mask


def weights_of(call: AttentionCall, scores: Tensor, mask: Tensor | None) -> Tensor:
    """What `scores_of` gave as weights: by softmax, or what takes its place; no dropout."""
    if call.weight is None:
        return softmax(scores, mask)
    weights: Tensor = call.weight(scores, call.context(mask, call.weight_state))
    return weights


def _joined(out: Tensor, reader: ScoreEncoding | WeightEncoding, read: Tensor | None) -> Tensor:
    """The results with what an encoding read in addition to v."""
    if read is not None and read.shape != out.shape:
        name, width = type(reader).__name__, read.shape[-1]
        raise ValueError(f"value_dim of {name} is {width}, but v has width {out.shape[-1]}")
    return out if read is None else out + read


def softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Weights over the visible keys; a row without any gets zeros, and zero gradients, instead of NaN."""
    if mask is None:
        return scores.softmax(-1)
    seen = mask.any(-1, keepdim=True)
    scores = scores.masked_fill(~mask & seen, -math.inf)  # an unseen row keeps its finite scores until it is zeroed
    return torch.where(seen, scores.softmax(-1), torch.zeros_like(scores))
