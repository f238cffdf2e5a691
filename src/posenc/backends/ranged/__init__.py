"""Ranges of distance, each by the fused kernel with queries and keys rotated for it, joined by their log-sum-exps.

    o_i = Σ_r exp(L_i^r − L_i) o_i^r,   L_i = log Σ_r exp L_i^r

That is one softmax over all keys. The backward pass of the kernel, given the joined results and norms, gives each
range's share of the gradients, so that nothing but results, norms and rotated queries and keys is kept. Which queries
and keys meet is cut into rectangles without a mask wherever positions are the indices (`rectangles`).
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from posenc.backends import fused_cpu
from posenc.backends.derivatives import only_plain_operations
from posenc.backends.ranged import join
from posenc.backends.ranged.rectangles import Rectangles, needs_no_masks
from posenc.call import AttentionCall
from posenc.dtypes import widened
from posenc.structure import Ranges
from posenc.tracing import tracing


def refuses(call: AttentionCall) -> str | None:
    """Why ranges cannot be joined for this call, or None."""
    ranges = ranges_of(call)
    if ranges is None:
        return "no encoding in the list rotates queries and keys by ranges of distance"
    if tracing():
        return "a compiler would unroll its loop anew for each length"
    transformed = only_plain_operations(call)
    if transformed is not None:
        return transformed
    if not fused_cpu.exists(call.q):
        return "kernels do not give their log-sum-exp here"
    if call.bias or call.softcap is not None or call.dropout is not None:
        return "a bias, softcap and dropout are none of its kernels' concern"
    for encoding, structures in zip(call.score[1:], call.structures[1:], strict=True):
        if structures is None or any(part.row_factor() is None for part in structures):
            return f"{type(encoding).__name__} must see the scores, which never leave the kernels"
    if call.replaces_softmax:
        return f"{type(call.weight).__name__} replaces softmax, which is inside the kernels"
    return None


def ranges_of(call: AttentionCall) -> Ranges | None:
    """What the first score encoding states, where that is ranges."""
    first = call.structures[0] if call.structures else None
    return first[0] if first and len(first) == 1 and isinstance(first[0], Ranges) else None


def strategy(call: AttentionCall) -> str:
    """How this backend goes about the call, in words."""
    ranges = ranges_of(call)
    count = 0 if ranges is None else len(ranges.parts)
    how = "without masks" if needs_no_masks(call) else "by blocks of queries with masks"
    return f"{count} ranges of distance, each by the fused kernel {how}, joined by their log-sum-exps"


def run(call: AttentionCall) -> Tensor:
    """Attention range by range, ``(batch, heads, queries, value_dim)`` in the dtype of q."""
    ranges = ranges_of(call)
    assert ranges is not None
    q = call.q if ranges.queries is None else ranges.queries
    k = call.k if ranges.keys is None else ranges.keys
    scale = call.scale
    if scale <= 0:  # kernels take positive ones alone
        q, scale = q * (-1.0 if scale < 0 else 0.0), -scale or 1.0
    for structures in call.structures[1:]:
        for later in structures or ():
            factor = later.row_factor()
            assert factor is not None
            q = (widened(q) * factor.to(widened(q).dtype).unsqueeze(-1)).to(call.q.dtype)
    rectangles = Rectangles(call, ranges)
    rotated: list[Tensor] = []
    width = max(q.shape[-1], call.v.shape[-1])
    for number, part in enumerate(ranges.parts):
        rows, keys = rectangles.extent(number)
        for x, at, span, some in ((q, part.q_pos, ranges.spans[0], rows), (k, part.k_pos, ranges.spans[1], keys)):
            rotated.append(_wide(_rotated(ranges, x, at, span, some), width))
    logits = call.sink
    if logits is not None and logits.shape[0] != q.shape[1]:
        raise ValueError(f"num_heads of the sink is {logits.shape[0]}, but q has {q.shape[1]} heads")
    out = join.attend(rectangles, _wide(call.v, width), logits, scale, rotated)
    return out[..., : call.v.shape[-1]]


def _rotated(ranges: Ranges, x: Tensor, at: Tensor, span: Tensor | int | None, some: slice) -> Tensor:
    """Some tokens of ``x`` rotated to their positions."""
    if (some.start, some.stop) != (0, x.shape[2]):
        x, at = x[:, :, some], at[..., some]
        span = span[..., some] if isinstance(span, Tensor) and span.shape[-1] > 1 else span
    return ranges.rotate(x, at, span)


def _wide(x: Tensor, width: int) -> Tensor:
    return x if x.shape[-1] == width else F.pad(x, (0, width - x.shape[-1]))
