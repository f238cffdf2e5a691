"""Positions that count gates, on a GPU: the operator around the kernels.

z = q · table is a product of its own, a row of positions for each query, and has its gradients from autograd; the
kernels read it and give its gradient back. Memory for the results, z, one number a query, and in the backward pass two
numbers for each query and block of keys, for as many queries at a time as fit `launch.ROOM`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from posenc.backends.triton import count_kernels, launch
from posenc.backends.triton.launch import KernelVisibility
from posenc.operators import operator_with_backward
from posenc.structure import Counts


def attend_counts(
    q: Tensor, k: Tensor, v: Tensor, counts: Counts, scale: float, visibility: KernelVisibility
) -> Tensor:
    """Softmax attention under positions that count gates, ``(batch, heads, queries, value_dim)`` in the dtype of q.

    Args:
        q, k, v: as in `attention`, of one dtype, float32 or less.
        counts: the structure, with at most 256 positions; its keys have the key heads of the call.
        scale: of the products of q and k.
        visibility: which keys each query attends to.
    """
    queries = q if counts.queries is None else counts.queries
    # One launch: the factor is the product's own, and of what beta = 0 leaves out nothing is read.
    none = q.new_empty(1, 1, dtype=torch.float32)
    flat = queries.float().flatten(0, 2)
    z = torch.addmm(none, flat, counts.table.float(), beta=0, alpha=counts.factor).view(*queries.shape[:3], -1)
    q, k, v = (launch.row_contiguous(x) for x in (q, k, v))
    gates: list[Tensor | None] = [None, None]
    if counts.queries is not None or counts.keys is not None:
        keys = k if counts.keys is None else counts.keys
        gates = [launch.row_contiguous(x.to(q.dtype)) for x in (queries, keys)]
    out: Tensor = _operator(
        q, k, v, *gates, z.contiguous(), visibility.q_ids, visibility.k_ids, scale, visibility.causal,
        visibility.window,
    )[0]  # fmt: skip
    return out


def _pointers(
    q: Tensor, k: Tensor, v: Tensor, gate_q: Tensor | None, gate_k: Tensor | None, z: Tensor, q_ids: Tensor | None,
    k_ids: Tensor | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Tensors in the order of kernels; others instead of those that are not there."""
    gates = q if gate_q is None else gate_q, k if gate_k is None else gate_k
    return q, k, v, *gates, z, q if q_ids is None else q_ids, k if k_ids is None else k_ids


def _constants(
    q: Tensor, v: Tensor, gate_q: Tensor | None, q_ids: Tensor | None, causal: bool, window: int
) -> dict[str, object]:
    width = (q if gate_q is None else gate_q).shape[3]
    separate = {"SEPARATE": gate_q is not None, "GD": width, "GATES": launch.padded(width)}
    return launch.constants(q, v, q_ids, causal, window, **separate)


def _forward(
    q: Tensor, k: Tensor, v: Tensor, gate_q: Tensor | None, gate_k: Tensor | None, z: Tensor, q_ids: Tensor | None,
    k_ids: Tensor | None, scale: float, causal: bool, window: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Results, and log2 of the norms of softmax, ``(batch, heads, queries)``."""
    queries = q.shape[2]
    out = q.new_empty(*q.shape[:3], v.shape[3])
    norms = q.new_empty(q.shape[:3], dtype=torch.float32)
    pointers = _pointers(q, k, v, gate_q, gate_k, z, q_ids, k_ids)
    count_kernels.walk[launch.row_grid(q, queries)](
        *pointers, out, norms, norms, scale, z.shape[3] - 1,
        *launch.strides(pointers[:5], q_ids, k_ids), *launch.sizes(q, k, 0, queries, window),
        KEEP=False, **_constants(q, v, gate_q, q_ids, causal, window),
    )  # fmt: skip
    return out, norms


def _backward(
    grad: Tensor, grad_norms: Tensor, out: Tensor, norms: Tensor, q: Tensor, k: Tensor, v: Tensor,
    gate_q: Tensor | None, gate_k: Tensor | None, z: Tensor, q_ids: Tensor | None, k_ids: Tensor | None,
    scale: float, causal: bool, window: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    mean = (grad.float() * out).sum(-1)  # in float32, without a copy of the results
    grad = grad.to(q.dtype).contiguous()
    pointers = _pointers(q, k, v, gate_q, gate_k, z, q_ids, k_ids)
    grad_q, grad_gate_q = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, pointers[3]))
    grad_k, grad_v, grad_gate_k = launch.key_gradients(q, k, k, v, k.new_empty(0) if gate_k is None else gate_k)
    grad_z = torch.zeros_like(z)
    steps, constants = launch.strides(pointers[:5], q_ids, k_ids), _constants(q, v, gate_q, q_ids, causal, window)
    for start, stop, carries, behind in launch.backward_chunks(q, k):
        rest = scale, z.shape[3] - 1, *steps, *launch.sizes(q, k, start, stop, window)
        rows, both = launch.row_grid(q, stop - start), (grad, mean, norms, carries, behind)
        count_kernels.walk[rows](*pointers, carries, carries, carries, *rest, KEEP=True, **constants)
        count_kernels.queries_backward[rows](*pointers, *both, grad_q, grad_gate_q, grad_z, *rest, **constants)
        count_kernels.keys_backward[launch.key_grid(q, k)](
            *pointers, *both, grad_k, grad_v, grad_gate_k, *rest, MORE=start > 0, **constants
        )
    return grad_q, grad_k.to(k.dtype), grad_v.to(v.dtype), grad_gate_q, grad_gate_k.to(k.dtype), grad_z


def _fake(q, k, v, gate_q, gate_k, z, q_ids, k_ids, scale, causal, window):  # type: ignore[no-untyped-def]
    return q.new_empty(*q.shape[:3], v.shape[3]), q.new_empty(q.shape[:3], dtype=torch.float32)


def _fake_backward(grad, grad_norms, out, norms, q, k, v, gate_q, gate_k, z, *rest):  # type: ignore[no-untyped-def]
    gates = q if gate_q is None else gate_q, k.new_empty(0) if gate_k is None else gate_k
    return tuple(x.new_empty(x.shape) for x in (q, k, v, *gates, z))


_operator = operator_with_backward(
    "attend_counts",
    _forward,
    _backward,
    fake=_fake,
    fake_backward=_fake_backward,
    keep=lambda inputs, outputs: (*outputs, *inputs),
)
