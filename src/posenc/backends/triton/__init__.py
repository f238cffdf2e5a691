"""Kernels in Triton for what PyTorch's own kernels cannot say: biases and gates, stick-breaking, counted positions.

One kernel of softmax attention takes whatever is a function of the distance (a row of numbers, or ALiBi's slopes), sums
of forget gates, a softcap, a sink and dropout, under causal order, a window, documents and padding; stick-breaking and
CoPE's counts have kernels of their own. They are for NVIDIA's GPUs from compute capability 8.0 on, and a kernel serves
only after `guard` has checked it on the card at hand.

Kernels are compiled for a call's widths when it comes; Triton is loaded then, and not before. `rotation` rotates
queries and keys in one pass; it is no backend, as it attends to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

from posenc.backends.derivatives import only_plain_operations
from posenc.backends.triton import guard
from posenc.backends.triton.guard import Kind
from posenc.backends.triton.launch import WIDEST, WIDEST_SOFTMAX, kernel_visibility, visibility_refusal
from posenc.call import AttentionCall, with_structures
from posenc.structure import Counts, Decay, Row, Sticks, Structure, running_sums
from posenc.tracing import exporting

MOST = 256  # positions of counts: rows of z must stay near the processor
CAPABILITY = (8, 0)  # of the oldest GPUs that the kernels are compiled for: asynchronous copies, bfloat16


def refuses(call: AttentionCall) -> str | None:
    """Why the kernels should not serve this call, or None; asks for a self-check where this card has made none."""
    return refuses_by_name(call) or guard.refusal(kind_of(call), call.q.device, run)


def refuses_by_name(call: AttentionCall) -> str | None:
    """Why the kernels cannot serve this call even where they were asked for by name, or None."""
    if not call.q.is_cuda or torch.version.hip is not None:
        return "its kernels were made for NVIDIA's GPUs"
    if torch.cuda.get_device_capability(call.q.device) < CAPABILITY:
        return "its kernels were made for GPUs of compute capability 8.0 and later"
    if find_spec("triton") is None:
        return "Triton is not installed"
    if exporting():
        return "an exported program must do without operators of this library"
    return only_plain_operations(call) or unsupported(call)


def unsupported(call: AttentionCall) -> str | None:
    """What the kernels do not know of this call, wherever it lies, or None."""
    if len({t.dtype for t in (call.q, call.k, call.v)}) > 1 or call.q.dtype == torch.float64:
        return "kernels take one dtype for queries, keys and values, float32 or less"
    if call.k.shape[2] == 0:
        return "the call has no keys"
    if any(encoding.scope.narrows for encoding in call.score):
        return "kernels know no keys that an encoding hides"
    call = with_structures(call)
    reason = visibility_refusal(call.visibility)
    if reason is not None:
        return reason
    if kernel_of(call) == "softmax":
        return _unsupported_softmax(call)
    return _unsupported_alone(call)


def kernel_of(call: AttentionCall) -> str:
    """Which kernels a call is for: softmax, sticks or counts."""
    if call.weight is not None and isinstance(call.weight.fast_form(), Sticks):
        return "sticks"
    return "counts" if any(isinstance(part, Counts) for part in _structures(call)) else "softmax"


def _structures(call: AttentionCall) -> Iterator[Structure | None]:
    """What the score encodings state; None for each that states nothing."""
    return (part for parts in call.structures for part in parts or (None,))


def _unsupported_softmax(call: AttentionCall) -> str | None:
    """What the softmax kernels do not know of a call, or None."""
    if call.replaces_softmax:
        return f"kernels know softmax and stick-breaking, not {type(call.weight).__name__}"
    parts = list(_structures(call))
    for part in parts:
        if not isinstance(part, Decay | Row):
            return "kernels know rows by distance, slopes, forget gates, and counts or sticks alone"
        if isinstance(part, Decay) and call.causal is not True:
            return "a decay by gates needs the causal order of indices"
    if call.bias and (not call.aligned or call.axes > 1):
        return "positions are given: no bias is a function of the difference of two indices"
    for bias, row in zip(call.bias, _rows(call), strict=True):
        if row is None and bias.distance_slopes(like=call.q) is None:
            return f"{type(bias).__name__} is no function of the distance"
    if sum(isinstance(part, Decay) for part in parts) > 1:
        return "kernels take one term of forget gates"
    if call.dropout is not None and call.dropout.p == 1:
        return "kernels divide by what dropout leaves, which is nothing"
    if max(call.q.shape[-1], call.v.shape[-1]) > WIDEST_SOFTMAX:
        return f"kernels take heads of at most {WIDEST_SOFTMAX} channels"
    return None


def _unsupported_alone(call: AttentionCall) -> str | None:
    """What the kernels of sticks and counts do not know of a call, or None."""
    parts = list(_structures(call))
    if call.bias:
        return "kernels of sticks and counts take no bias of positions"
    if call.softcap is not None or call.dropout is not None:
        return "kernels of sticks and counts know neither softcap nor dropout"
    if call.weight is not None and (not isinstance(call.weight.fast_form(), Sticks) or parts):
        return "kernels support only stick-breaking instead of softmax, without other terms of the scores"
    if call.weight is None and len(parts) != 1:
        return "kernels take a term that counts gates alone"
    for part in parts:
        if isinstance(part, Counts) and part.table.shape[1] > MOST:
            return f"kernels count to at most {MOST - 1}, got {part.table.shape[1] - 1}"
        if isinstance(part, Counts) and part.keys is not None and part.keys.shape[1] != call.k.shape[1]:
            return "the gates have other key heads than the call"
    if max(call.q.shape[-1], call.v.shape[-1]) > WIDEST:
        return f"kernels take heads of at most {WIDEST} channels"
    return None


def _rows(call: AttentionCall) -> tuple[Tensor | None, ...]:
    """The row of each bias, None for slopes, which need none."""
    if all(bias.distance_slopes(like=call.q) is not None for bias in call.bias):
        return (None,) * len(call.bias)
    return call.rows


def kind_of(call: AttentionCall) -> Kind:
    """What `guard` checks once for all calls like this one, which `unsupported` allows."""
    call = with_structures(call)
    kernel, flags = kernel_of(call), []
    if kernel == "softmax":
        terms = terms_of(call)
        flags += [name for name in ("row", "slopes", "gates", "sink") if getattr(terms, name) is not None]
        flags += ["softcap"] if call.softcap is not None else []
        flags += ["dropout"] if call.dropout is not None else []
        trained = [t for t in (terms.row, terms.gates, terms.sink) if t is not None]
    elif call.weight is not None:
        sticks = call.weight.fast_form()
        assert isinstance(sticks, Sticks)
        flags += [sticks.remainder] + ["current"] * sticks.attend_current
        trained = [] if sticks.vector is None else [sticks.vector]
    else:
        (counts,) = _structures(call)
        assert isinstance(counts, Counts)
        flags += ["own gates"] if counts.queries is not None or counts.keys is not None else []
        trained = [t for t in (counts.table, counts.queries, counts.keys) if t is not None]
    flags += ["causal"] * (call.causal is True) + ["window"] * (call.window is not None)
    flags += ["documents"] if call.segments is not None or call.mask is not None else []
    training = call.training or (torch.is_grad_enabled() and any(t.requires_grad for t in trained))
    return Kind(kernel, tuple(flags), call.q.dtype, call.q.shape[3], call.v.shape[3], training)


class _Terms(NamedTuple):
    """What a call adds to the logits of softmax; None: nothing."""

    row: Tensor | None
    slopes: Tensor | None
    gates: Tensor | None
    sink: Tensor | None


def terms_of(call: AttentionCall) -> _Terms:
    """All that is added to the logits of a call whose structures have been asked: rows and slopes summed up."""
    rows, slopes, gates = [], [], None
    for bias, row in zip(call.bias, _rows(call), strict=True):
        if row is None:
            slopes.append(bias.distance_slopes(like=call.q))
        else:
            rows.append(row)
    for part in _structures(call):
        if isinstance(part, Row):
            rows.append(part.values)
        elif isinstance(part, Decay):
            gates = part.gates
    return _Terms(
        sum(rows[1:], rows[0]) if rows else None, sum(slopes[1:], slopes[0]) if slopes else None, gates, call.sink
    )


def strategy(call: AttentionCall) -> str:
    """How this backend goes about the call, in words."""
    call = with_structures(call)
    kernel = kernel_of(call)
    if kernel != "softmax":
        return f"a kernel of its own for {kernel}, in Triton"
    terms = terms_of(call)._asdict()
    said = {"row": "a bias by distance", "slopes": "slopes", "gates": "forget gates", "sink": "a sink"}
    added = [words for name, words in said.items() if terms[name] is not None]
    return f"one softmax kernel under {', '.join(added) or 'no bias'}, in Triton"


def run(call: AttentionCall) -> Tensor:
    """Attention by one of the kernels, ``(batch, heads, queries, value_dim)`` in the dtype of q."""
    call = with_structures(call)
    qkv, visibility, kernel = (call.q, call.k, call.v), kernel_visibility(call.visibility), kernel_of(call)
    if kernel == "softmax":
        from posenc.backends.triton.softmax import Terms, attend_softmax

        row, slopes, gates, sink = terms_of(call)
        sums = None if gates is None else running_sums(gates, call.visibility)
        terms = Terms(row, slopes, sums, sink)
        return attend_softmax(*qkv, terms, call.scale, visibility, call.softcap, call.dropout)
    if kernel == "sticks":
        assert call.weight is not None
        sticks = call.weight.fast_form()
        assert isinstance(sticks, Sticks)
        from posenc.backends.triton.sticks import attend_sticks

        return attend_sticks(*qkv, sticks, call.scale, visibility, call.tolerance or 2e-9)
    from posenc.backends.triton.counts import attend_counts

    (counts,) = _structures(call)
    assert isinstance(counts, Counts)
    return attend_counts(*qkv, counts, call.scale, visibility)
