"""A decode step in closed form: one query over cached keys, without a matrix of positions and without a loop.

The query is the last of the keys, so whatever an encoding adds to its scores is one row ``(heads, keys)``:

    a bias            its values at distances keys − 1 … 0 (`BiasEncoding.of_newest`); where they depend on no
                      parameter they are kept for the next steps
    forget gates      running sums of the gates from the newest key back (`ScoreEncoding.of_newest`)
    stick-breaking    log weight = log beta + running sum of what later keys leave, likewise from the newest key back

A row goes to PyTorch's fused kernel as its mask. With few keys a step consists of the overhead of calls, not of
numbers, so that what counts here is how few there are.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from posenc.backends import sdpa
from posenc.backends.derivatives import only_plain_operations
from posenc.backends.inputs.attention_call import AttentionCall, score_dtype
from posenc.encoding import BiasEncoding, Encoding, ScoreEncoding, WeightEncoding
from posenc.structure import Sticks
from posenc.tracing import tracing

LONG = 4096  # keys up to which sticks are broken in one piece
FEW = 96  # keys up to which sums over the later ones are a product with a matrix of ones


def refuses(call: AttentionCall) -> str | None:
    """Why this is no step in closed form, or None."""
    static, q, k = call.static, call.q, call.k
    if q.shape[2] != 1:
        return "it serves one query"
    if not q.is_cpu:
        return "it was made for CPU"
    if not (static.bias or static.score or static.weight is not None):
        return "nothing is added to the scores: the kernel alone serves"
    if call.mask is not None or call.segments is not None or static.causal == "positions":
        return "a mask, documents or positions decide which keys are visible"
    if not call.aligned or static.axes != 1:
        return "positions are given"
    if static.softcap is not None or call.dropout is not None or static.scale <= 0:
        return "softcap, dropout and scales that are not positive are not in its form"
    if static.tolerance:
        return "tiles leave out what the tolerance allows, and this would not"
    if tracing():
        return "a compiler makes one graph for all lengths"
    transformed = only_plain_operations()
    if transformed is not None:
        return transformed
    for encoding in static.score:
        if encoding.scope.narrows or type(encoding).of_newest is ScoreEncoding.of_newest:
            return f"{type(encoding).__name__} has no row for one query"
    if static.weight is not None:
        sticks = static.weight.fast_form()
        if not isinstance(sticks, Sticks):
            return f"{type(static.weight).__name__} has no closed form for one query"
        if sticks.vector is not None and sticks.vector.shape[1] != call.v.shape[3]:
            return "the vector that gets the remainder is not as wide as the values"
        if k.shape[2] > LONG:
            return "many keys take less time piece by piece, while they are in the processor's cache"
        if q.dtype != score_dtype(q.dtype):
            return "stick-breaking in half precision reads its keys piece by piece"
    elif call.v.shape[3] != k.shape[3]:
        return "values of another width leave the fused kernel"
    if torch.is_grad_enabled() and _learns(call):
        return "a backward pass may follow"
    return None


def _learns(call: AttentionCall) -> bool:
    """Whether anything that the result depends on wants a gradient."""
    static = call.static
    tensors = [call.q, call.k, call.v, *call.score_features]
    if any(t is not None and t.requires_grad for t in tensors):
        return True
    encodings: list[Encoding] = [*static.bias, *static.score, *([] if static.weight is None else [static.weight])]
    return any(p.requires_grad for encoding in encodings for p in encoding.parameters())


def strategy(call: AttentionCall) -> str:
    """How this backend goes about the call, in words."""
    added = "one row added to the scores" if call.static.bias or call.static.score else "no bias"
    return f"one query in closed form: {'sticks broken' if call.static.weight is not None else 'softmax'}, {added}"


def run(call: AttentionCall) -> Tensor:
    """The query's result, ``(batch, heads, 1, value_dim)`` in the dtype of q."""
    static = call.static
    return attend(
        call.q, call.k, call.v, static.bias, static.score, call.score_features, static.weight, static.scale,
        static.window,
    )  # fmt: skip


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Sequence[BiasEncoding],
    score: Sequence[ScoreEncoding],
    score_features: Sequence[Tensor | None],
    weight: WeightEncoding | None,
    scale: float,
    window: int | None,
) -> Tensor:
    """`run` without an `AttentionCall` around its arguments, which take their names from there."""
    keys = k.shape[2]
    row: Tensor | None = None  # all that is added to the scores, (heads, keys) or (batch | 1, heads, keys)
    for encoding in bias:
        part = encoding.of_newest(keys, like=q)
        row = part if row is None else row + part
    for scored, features in zip(score, score_features, strict=True):
        part = scored.of_newest(features, k, scale)
        row = part if row is None else row + part
    if window is not None and window < keys:
        k, v = k.narrow(2, keys - window, window), v.narrow(2, keys - window, window)
        row = None if row is None else row.narrow(-1, keys - window, window)
    if weight is not None:
        sticks = weight.fast_form()
        assert isinstance(sticks, Sticks)
        return _broken(q, k, v, scale, row, sticks)
    assert row is not None
    if row.dtype == torch.float64 != q.dtype:  # of parameters in float64: the kernel takes float32 or its own dtype
        row = row.float()
    mask = row.unsqueeze(-2) if row.ndim == 3 else row.view(1, -1, 1, row.shape[-1])  # of 4 axes the kernel copies none
    return sdpa.kernel(q, k, v, mask, False, scale, 0.0)


def _broken(q: Tensor, k: Tensor, v: Tensor, scale: float, row: Tensor | None, sticks: Sticks) -> Tensor:
    """Stick-breaking over keys in the order of the text, without a graph of autograd: sums go into what they change."""
    (batch, heads, _, width), num_kv_heads, keys = q.shape, k.shape[1], k.shape[2]
    of_keys = k.flatten(0, 1)
    by_key_head = q.reshape(batch * num_kv_heads, heads // num_kv_heads, width)
    products = torch.baddbmm(of_keys.new_empty(()), by_key_head, of_keys.mT, beta=0, alpha=scale)
    scores, values = products.view(batch, heads, keys), v
    if row is not None:
        scores += row
    if not sticks.attend_current:
        keys -= 1
        scores, values = scores.narrow(-1, 0, keys), v.narrow(2, 0, keys)
    taken = F.softplus(scores, threshold=40.0)  # PyTorch's own threshold loses digits of float64
    weights = scores.sub_(taken) if sticks.attend_current else scores - taken  # exact, before large sums come in
    triangle = _triangle(keys, taken)
    if triangle is None:
        left = taken.flip(-1).cumsum(-1).flip(-1)  # −log of what a key and all later ones leave of the stick
        if keys > 1:
            weights.narrow(-1, 0, keys - 1).sub_(left.narrow(-1, 1, keys - 1))
    else:
        by_head = taken.view(-1, keys)
        weights = torch.addmm(weights.view(-1, keys), by_head, triangle, alpha=-1)
        left = by_head.sum(-1, keepdim=True).view(batch, heads, 1) if sticks.remainder != "drop" else taken
    weights = weights.exp_().view(batch * num_kv_heads, heads // num_kv_heads, keys)
    out = torch.bmm(weights, values.flatten(0, 1)).view(batch, heads, 1, v.shape[3])
    if sticks.remainder == "drop":
        return out
    remainder = left.narrow(-1, 0, 1).neg().exp_() if keys else left.new_ones(batch, heads, 1)
    if sticks.remainder == "own":
        newest_value = v.narrow(2, v.shape[2] - 1, 1)
        receiver = newest_value if heads == num_kv_heads else newest_value.repeat_interleave(heads // num_kv_heads, 1)
    else:
        assert sticks.vector is not None
        receiver = sticks.vector.to(out.dtype).unsqueeze(-2)
    return out.addcmul_(remainder.unsqueeze(-1), receiver)


_TRIANGLES: dict[int, Tensor] = {}


def _triangle(keys: int, like: Tensor) -> Tensor | None:
    """Ones below the diagonal: one matrix product with them sums over later keys; None where that is not faster."""
    if not 0 < keys <= FEW or like.dtype != torch.float32 or torch.get_float32_matmul_precision() != "highest":
        return None
    if type(like) is not Tensor:  # a stand-in of a tracer, which does not mix with tensors
        return None
    triangle = _TRIANGLES.get(keys)
    if triangle is None:
        with torch.inference_mode(False):
            # Whatever the defaults are: it is kept for calls under other ones.
            triangle = _TRIANGLES[keys] = torch.ones(keys, keys, dtype=like.dtype, device=like.device).tril_(-1)
    return triangle
