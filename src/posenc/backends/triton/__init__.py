"""Kernels in Triton for what PyTorch's own kernels cannot say: weights by stick-breaking, positions that count gates.

Kernels are compiled for a call's widths when it comes; Triton is loaded then, and not before. `rotation` rotates
queries and keys in one pass; it is no backend, as it attends to nothing.
"""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor

from posenc.backends.derivatives import only_plain_operations
from posenc.backends.triton.launch import WIDEST, kernel_visibility, visibility_refusal
from posenc.call import AttentionCall, with_structures
from posenc.structure import Counts, Sticks
from posenc.tracing import exporting

MOST = 256  # positions of counts: rows of z must stay near the processor


def refuses(call: AttentionCall) -> str | None:
    """Why the kernels cannot serve this call, or None."""
    if not call.q.is_cuda or torch.version.hip is not None:
        return "its kernels were made for NVIDIA's GPUs"
    if find_spec("triton") is None:
        return "Triton is not installed"
    if exporting():
        return "an exported program must do without operators of this library"
    return only_plain_operations(call) or unsupported(call)


def unsupported(call: AttentionCall) -> str | None:
    """What the kernels do not know of this call, wherever it lies, or None."""
    structures = [part for parts in with_structures(call).structures for part in parts or (None,)]
    sticks = None if call.weight is None else call.weight.fast_form()
    if call.bias:
        return "kernels take no bias of positions"
    if call.softcap is not None or call.dropout is not None:
        return "kernels know neither softcap nor dropout"
    if call.weight is not None and (not isinstance(sticks, Sticks) or structures):
        return "kernels support only stick-breaking instead of softmax, without other terms of the scores"
    if call.weight is None and not (len(structures) == 1 and isinstance(structures[0], Counts)):
        return "kernels know stick-breaking, and one term that counts gates"
    for part in structures:
        if isinstance(part, Counts) and part.table.shape[1] > MOST:
            return f"kernels count to at most {MOST - 1}, got {part.table.shape[1] - 1}"
        if isinstance(part, Counts) and part.keys is not None and part.keys.shape[1] != call.k.shape[1]:
            return "the gates have other key heads than the call"
    if len({t.dtype for t in (call.q, call.k, call.v)}) > 1 or call.q.dtype == torch.float64:
        return "kernels take one dtype for queries, keys and values, float32 or less"
    if max(call.q.shape[-1], call.v.shape[-1]) > WIDEST:
        return f"kernels take heads of at most {WIDEST} channels"
    if call.k.shape[2] == 0:
        return "the call has no keys"
    return visibility_refusal(call.visibility)


def strategy(call: AttentionCall) -> str:
    """How this backend goes about the call, in words."""
    return f"a kernel of its own for {'counts' if call.weight is None else 'sticks'}, in Triton"


def run(call: AttentionCall) -> Tensor:
    """Attention by one of the kernels, ``(batch, heads, queries, value_dim)`` in the dtype of q."""
    call = with_structures(call)
    qkv = call.q, call.k, call.v
    visibility = kernel_visibility(call.visibility)
    if call.weight is not None:
        sticks = call.weight.fast_form()
        assert isinstance(sticks, Sticks)
        from posenc.backends.triton.sticks import attend_sticks

        return attend_sticks(*qkv, sticks, call.scale, visibility, call.tolerance or 2e-9)
    from posenc.backends.triton.counts import attend_counts

    (counts,) = (part for parts in call.structures for part in parts or ())
    assert isinstance(counts, Counts)
    return attend_counts(*qkv, counts, call.scale, visibility)
