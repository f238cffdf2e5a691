"""Ranges of distance, each by the fused kernel with queries and keys turned for it, joined by their log-sum-exps.

    o_i = Σ_r exp(L_i^r − L_i) o_i^r,   L_i = log Σ_r exp L_i^r

That is one softmax over all keys. The backward pass of the kernel, given the joined results and norms, gives each
range's share of the gradients, so that nothing but results, norms and turned queries and keys is kept. Which queries
and keys meet is cut into pieces without a mask wherever distances are those of indices (`pieces`).
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from posenc.backends import fused_cpu
from posenc.backends.derivatives import only_plain_operations
from posenc.backends.inputs.attention_call import Problem, widen
from posenc.backends.ranged import join
from posenc.backends.ranged.pieces import Cut, plain
from posenc.structure import Factor, Ranges, Sink
from posenc.tracing import tracing


def refuses(problem: Problem) -> str | None:
    """Why ranges cannot be joined for this problem, or None."""
    stated = ranges_of(problem)
    if stated is None:
        return "nothing in the list turns queries and keys by ranges of distance"
    if tracing():
        return "a compiler would unroll its loop anew for each length"
    transformed = only_plain_operations()
    if transformed is not None:
        return transformed
    if not fused_cpu.exists(problem.q):
        return "kernels do not give their log-sum-exp here"
    if problem.bias or problem.softcap is not None or problem.dropout is not None:
        return "a bias, softcap and dropout are none of its kernels' concern"
    for (encoding, _), found in zip(problem.score[1:], problem.structures[1:], strict=True):
        if found is None or not all(isinstance(part, Factor) for part in found):
            return f"{type(encoding).__name__} must see the scores, which never leave the kernels"
    if problem.weight is not None and not isinstance(problem.weight.structure(), Sink):
        return f"{type(problem.weight).__name__} takes the place of softmax, which is inside the kernels"
    return None


def ranges_of(problem: Problem) -> Ranges | None:
    """What the first score encoding states, where that is ranges."""
    first = problem.structures[0] if problem.structures else None
    return first[0] if first and len(first) == 1 and isinstance(first[0], Ranges) else None


def strategy(problem: Problem) -> str:
    """How this backend goes about the problem, in words."""
    stated = ranges_of(problem)
    count = 0 if stated is None else len(stated.parts)
    how = "without masks" if plain(problem) else "by blocks of queries with masks"
    return f"{count} ranges of distance, each by the fused kernel {how}, joined by their log-sum-exps"


def run(problem: Problem) -> Tensor:
    """Attention range by range, ``(batch, heads, queries, value_dim)`` in the dtype of q."""
    stated = ranges_of(problem)
    assert stated is not None
    q = problem.q if stated.queries is None else stated.queries
    k = problem.k if stated.keys is None else stated.keys
    scale = problem.scale
    if scale <= 0:  # kernels take positive ones alone
        q, scale = q * (-1.0 if scale < 0 else 0.0), -scale or 1.0
    for found in problem.structures[1:]:
        for factor in found or ():
            assert isinstance(factor, Factor)
            q = (widen(q) * factor.values.to(widen(q).dtype).unsqueeze(-1)).to(problem.q.dtype)
    cut = Cut(problem, stated)
    turned: list[Tensor] = []
    width = max(q.shape[-1], problem.v.shape[-1])
    for number, part in enumerate(stated.parts):
        rows, keys = cut.extent(number)
        for x, at, span, some in ((q, part.q_pos, stated.spans[0], rows), (k, part.k_pos, stated.spans[1], keys)):
            turned.append(_wide(_turned(stated, x, at, span, some), width))
    sink = None if problem.weight is None else problem.weight.structure()
    logits = sink.logits if isinstance(sink, Sink) else None
    if logits is not None and logits.shape[0] != q.shape[1]:
        raise ValueError(f"num_heads of the sink is {logits.shape[0]}, but q has {q.shape[1]} heads")
    out = join.attend(cut, _wide(problem.v, width), logits, scale, turned)
    return out[..., : problem.v.shape[-1]]


def _turned(stated: Ranges, x: Tensor, at: Tensor, span: Tensor | int | None, some: slice) -> Tensor:
    """Some tokens of ``x`` turned to their positions."""
    if (some.start, some.stop) != (0, x.shape[2]):
        x, at = x[:, :, some], at[..., some]
        span = span[..., some] if isinstance(span, Tensor) and span.shape[-1] > 1 else span
    return stated.turn(x, at, span)


def _wide(x: Tensor, width: int) -> Tensor:
    return x if x.shape[-1] == width else F.pad(x, (0, width - x.shape[-1]))
