"""PyTorch's FlexAttention: a softmax kernel made for each sum of terms, for GPUs.

function of the distance     a row of numbers a head, read at n + queries − 1, from any encoding
term per key                 one number a head and key
decay by gates               running sums C in float64, given as float32 pairs: (C_i − C_j) of both parts. The
                             first parts of near sums differ exactly, those of far ones by a relative 6e-8, so
                             that the error follows the decay, not the length; float32 sums lose 8e-3 at 131,072 tokens
network of one number        the sum over its units written out; without gradients

What is visible to no query is skipped by blocks, found from the ends of each block (`block_masks`), never from a
matrix of queries and keys. Under softmax a number that all keys of a query share has no effect, so C_i carries no
gradient. Off a GPU it runs only where it is asked for by name, as PyTorch's uncompiled definition: a check of
correctness.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from posenc.backends.derivatives import only_plain_operations
from posenc.backends.flex.block_masks import kept_block_mask
from posenc.call import AttentionCall, with_structures
from posenc.encoding import softcapped
from posenc.structure import Decay, Row, ScoreMod, Structure
from posenc.tracing import exporting
from posenc.visibility import VisibilityMask


def refuses(call: AttentionCall) -> str | None:
    """Why FlexAttention should not serve this call, or None."""
    if not call.q.is_cuda:
        return "off a GPU it builds every score"
    return refuses_by_name(call)


def refuses_by_name(call: AttentionCall) -> str | None:
    """Why FlexAttention cannot serve this call even where it was asked for by name, or None."""
    cuda, transformed = call.q.is_cuda, only_plain_operations(call)
    if transformed is not None:
        return transformed
    if call.dropout is not None:
        return "its kernels have no dropout"
    if call.q.device.type not in ("cpu", "cuda"):
        return f"it was never tried here on {call.q.device.type}"
    if exporting():
        return "exporters do not follow it"
    if call.replaces_softmax:
        return f"{type(call.weight).__name__} replaces softmax, which is inside the kernel"
    if cuda and (call.q.dtype == torch.float64 or min(call.q.shape[-1], call.v.shape[-1]) < 16):
        return "its kernels take heads of at least 16 channels, float32 or less"
    if len({t.dtype for t in (call.q, call.k, call.v)}) > 1 or 0 in call.q.shape or 0 in call.k.shape:
        return "it takes one dtype for queries, keys and values, and no empty ones"
    if call.axes > 1 and (call.bias or call.causal == "positions"):
        return "positions have several coordinates"
    call = with_structures(call)
    if not cuda and _wants_gradients(call):
        return "it has no backward pass on CPU"
    return _terms_refused(call)


def _terms_refused(call: AttentionCall) -> str | None:
    """Which term cannot be said in FlexAttention, or None."""
    if call.bias and not call.aligned:
        return "positions are given: no bias is a function of the difference of two indices"
    for bias in call.bias:
        if bias.of_distance(call.k_pos[:1]) is None:
            if bias.network(1, 1, like=call.q) is None:
                return f"{type(bias).__name__} states no structure"
            if call.training:
                return f"{type(bias).__name__}: its kernels have no gradients for a network"
    ordered = call.causal is True and (call.mask is None or call.mask.shape[2] == 1)
    for encoding, stated in zip(call.score, call.structures, strict=True):
        name = type(encoding).__name__
        if stated is None:
            return f"{name} states no structure for this call"
        for term in stated:
            if isinstance(term, Decay) and term.gates.requires_grad and torch.is_grad_enabled() and _shortened(call.q):
                return "its gradient of gates was off by a third in bfloat16 (4,096 tokens, H200, torch 2.11)"
            reason = term.flex_refusal(name, ordered=ordered, sink=call.weight is not None)
            if reason is not None:
                return reason
    return None


def strategy(call: AttentionCall) -> str:
    """How this backend goes about the call, in words."""
    return "one kernel that PyTorch's compiler makes of all terms (FlexAttention)"


def run(call: AttentionCall) -> Tensor:
    """Attention by FlexAttention, ``(batch, heads, queries, value_dim)``."""
    call = with_structures(call)
    return attend_flex(call.q, call.k, call.v, terms_of(call), call.scale, call.visibility, call.softcap, call.sink)


def terms_of(call: AttentionCall) -> list[Structure]:
    """All that is added to the scores: functions of the distance as one row, what encodings state, and networks."""
    queries, keys, row = call.q.shape[2], call.k.shape[2], call.distance_row()
    terms: list[Structure] = [] if row is None else [Row(row)]
    terms += [structure for stated in call.structures for structure in stated or ()]
    for bias in call.bias:
        network = bias.network(queries, keys, like=call.q)
        if network is not None and bias.of_distance(call.k_pos[:1]) is None:
            terms.append(network)
    return terms


def attend_flex(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    terms: Sequence[Structure],
    scale: float,
    visibility: VisibilityMask,
    softcap: float | None = None,
    sink: Tensor | None = None,
) -> Tensor:
    """softmax(scale · q·k + terms) v, ``(batch, heads, queries, value_dim)``; zeros for a query without visible keys.

    Args:
        q, k, v: as in `attention`, of one dtype.
        terms: structures that have a score_mod: `Row`, `Column`, `Decay` and `Network`.
        scale: of the products of q and k.
        visibility: which keys each query attends to.
        softcap: what scale · q·k is capped to, before the terms.
        sink: logits ``(heads,)`` that take weight, or None: the kernel gives its log-sum-exp, with a gradient.
    """
    scored = scores_of(terms, q.shape[2], k.shape[2], visibility, softcap)
    options = {
        "score_mod": scored, "block_mask": kept_block_mask(visibility, q.shape[2], k.shape[2]), "scale": scale,
        "enable_gqa": q.shape[1] != k.shape[1],
    }  # fmt: skip
    kernel: Callable[..., Any] = flex_attention
    if _compiles(q):
        kernel = _compiled(kind_of(q, k, v, terms, visibility, softcap, sink))
    if sink is None:
        out: Tensor = kernel(q, k, v, **options)
        return out
    result, norm = kernel(q, k, v, return_lse=True, **options)
    share = (norm - sink.to(norm.dtype).unsqueeze(-1)).sigmoid()
    scaled: Tensor = result * share.unsqueeze(-1).to(result.dtype)
    return scaled


def scores_of(
    terms: Sequence[Structure],
    queries: int,
    keys: int,
    visibility: VisibilityMask,
    softcap: float | None = None,
) -> ScoreMod | None:
    """What is done to each score inside the kernel, as `attend_flex` takes it; None: nothing."""
    scores = [] if softcap is None else [_capped(softcap)]
    scores += [term.score_mod(queries, keys, visibility) for term in terms]
    return _summed(scores)


def _summed(terms: list[ScoreMod]) -> ScoreMod | None:
    """All terms, one after another."""
    if not terms:
        return None

    def score_mod(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        for term in terms:
            score = term(score, b, h, i, j)
        return score

    return score_mod


def _capped(softcap: float) -> ScoreMod:
    """A cap on the products of queries and keys."""

    def term(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return softcapped(score, softcap)

    return term


def kind_of(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    terms: Sequence[Structure],
    visibility: VisibilityMask,
    softcap: float | None,
    sink: Tensor | None,
) -> Hashable:
    """What makes calls need kernels of their own, lengths and values aside: takes the arguments of `attend_flex`."""
    tensors = [t for term in terms for t in vars(term).values() if isinstance(t, Tensor)]
    segments = visibility.segments or ()
    positions = (visibility.q_pos, visibility.k_pos) if visibility.causal == "positions" else ()
    told = (q, k, v, visibility.mask, sink, *segments, *positions, *tensors)
    return (
        tuple(map(type, terms)), tuple(map(_told, told)), q.shape[1] // k.shape[1], q.shape[3], v.shape[3],
        visibility.causal, visibility.window is None, softcap, torch.is_grad_enabled(),
    )  # fmt: skip


def _told(tensor: Tensor | None) -> Hashable:
    """What a compiler looks at in a tensor: everything but its sizes, of which it keeps that they are 1."""
    if tensor is None:
        return None
    return tensor.dtype, tensor.device, tensor.requires_grad, tuple(size == 1 for size in tensor.shape)


@functools.cache
def _compiled(kind: Hashable) -> Callable[..., Any]:
    """FlexAttention compiled for one kind of calls, when it is first wanted.

    PyTorch stops compiling a function after 8 forms of it and then runs the uncompiled one, which builds every score,
    with a warning in its log alone. So each kind has a function of its own, and its lengths have forms to spare.
    """

    def attend(*args: Any, **options: Any) -> Any:
        return flex_attention(*args, **options)

    code = attend.__code__.replace(co_name="attend_kind")  # forms are counted by code, which closures share
    own = types.FunctionType(code, attend.__globals__, closure=attend.__closure__)
    return torch.compile(own, **_LIMITS)


# Of torch.compile: forms of one kind, counted apart from those of other functions.
_LIMITS: dict[str, Any] = {
    name: value
    for name, value in (("recompile_limit", 64), ("isolate_recompiles", True))
    if name in inspect.signature(torch.compile).parameters
}


def _compiles(q: Tensor) -> bool:
    """Whether the kernel is compiled here: on a GPU, unless a compiler is at work already."""
    return q.is_cuda and not torch.compiler.is_compiling()


def _shortened(q: Tensor) -> bool:
    """Whether products are of 16 bits."""
    return q.dtype in (torch.bfloat16, torch.float16)


def _wants_gradients(call: AttentionCall) -> bool:
    """Whether anything that the call depends on does."""
    tensors = [t for stated in call.structures for term in stated or () for t in term.tensors().values()]
    needs = any(t.requires_grad for t in tensors)
    return call.training or (torch.is_grad_enabled() and needs)
