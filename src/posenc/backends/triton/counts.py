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
    z = (queries.float() @ counts.table.float()) * counts.factor
    q, k, v = (launch.row_contiguous(x) for x in (q, k, v))
    gates: list[Tensor | None] = [None, None]
    if counts.queries is not None or counts.keys is not None:
        keys = k if counts.keys is None else counts.keys
        gates = [launch.row_contiguous(x.to(q.dtype)) for x in (queries, keys)]
    out: Tensor = _operator(
        q, k, v, *gates, z.contiguous(), visibility.q_ids, visibility.k_ids, scale, visibility.causal, visibility.window
    )[0]
    return out


def _pointers(
    q: Tensor, k: Tensor, v: Tensor, gate_q: Tensor | None, gate_k: Tensor | None, z: Tensor, q_ids: Tensor | None,
    k_ids: Tensor | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Tensors in the order of kernels; others instead of those that are not there."""
    gates = q if gate_q is None else gate_q, k if gate_k is None else gate_k
    return q, k, v, *gates, z, q if q_ids is None else q_ids, k if k_ids is None else k_ids


def _strides(tensors: tuple[Tensor, ...], q_ids: Tensor | None, k_ids: Tensor | None) -> tuple[int, ...]:
    """Of queries, keys and values, queries and keys of the gates, and documents."""
    of_tensors = [step for x in tensors for step in launch.strides(x)]
    return *of_tensors, launch.batch_stride(q_ids), launch.batch_stride(k_ids)


def _sizes(q: Tensor, k: Tensor, v: Tensor, gate_q: Tensor, start: int, stop: int, window: int) -> tuple[int, ...]:
    heads, blocks = q.shape[1], -(-k.shape[2] // launch.tile(q))
    widths = q.shape[3], v.shape[3], gate_q.shape[3]
    return heads, heads // k.shape[1], start, stop, q.shape[2], k.shape[2], window, *widths, blocks


def _constants(
    q: Tensor, v: Tensor, gate_q: Tensor | None, q_ids: Tensor | None, causal: bool, window: int
) -> dict[str, object]:
    return {
        "CAUSAL": causal, "WINDOW": window > 0, "IDS": q_ids is not None, "EXACT": launch.exact(q),
        "SEPARATE": gate_q is not None, "ROWS": launch.tile(q), "COLUMNS": launch.tile(q),
        "WIDTH": launch.padded(q.shape[3]), "VALUES": launch.padded(v.shape[3]),
        "GATES": launch.padded((q if gate_q is None else gate_q).shape[3]),
        "num_warps": launch.WARPS, "num_stages": launch.STAGES,
    }  # fmt: skip


@torch.library.custom_op("posenc::attend_counts", mutates_args=())
def _operator(
    q: Tensor, k: Tensor, v: Tensor, gate_q: Tensor | None, gate_k: Tensor | None, z: Tensor, q_ids: Tensor | None,
    k_ids: Tensor | None, scale: float, causal: bool, window: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Results, and log2 of the norms of softmax, ``(batch, heads, queries)``."""
    batch, heads, queries = q.shape[:3]
    out = q.new_empty(batch, heads, queries, v.shape[3])
    norms = q.new_empty(batch, heads, queries, dtype=torch.float32)
    pointers = _pointers(q, k, v, gate_q, gate_k, z, q_ids, k_ids)
    count_kernels.walk[(-(-queries // launch.tile(q)), batch * heads)](
        *pointers, out, norms, norms, scale, z.shape[3] - 1, *_strides(pointers[:5], q_ids, k_ids),
        *_sizes(q, k, v, pointers[3], 0, queries, window),
        KEEP=False, **_constants(q, v, gate_q, q_ids, causal, window),
    )  # fmt: skip
    return out, norms


@_operator.register_fake
def _(q, k, v, gate_q, gate_k, z, q_ids, k_ids, scale, causal, window):  # type: ignore[no-untyped-def]
    return q.new_empty(*q.shape[:3], v.shape[3]), q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.custom_op("posenc::attend_counts_backward", mutates_args=())
def _backward_operator(
    grad: Tensor, out: Tensor, norms: Tensor, q: Tensor, k: Tensor, v: Tensor, gate_q: Tensor | None,
    gate_k: Tensor | None, z: Tensor, q_ids: Tensor | None, k_ids: Tensor | None, scale: float, causal: bool,
    window: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    batch, heads, queries, num_kv_heads, keys = *q.shape[:3], *k.shape[1:3]
    size = launch.tile(q)
    blocks, last = -(-keys // size), z.shape[3] - 1
    delta = (grad.float() * out.float()).sum(-1)
    grad = grad.to(q.dtype).contiguous()
    pointers = _pointers(q, k, v, gate_q, gate_k, z, q_ids, k_ids)
    of_q, of_gate_q = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, pointers[3]))
    of_k, of_v, of_gate_k, of_z = (
        torch.zeros(x.shape, dtype=torch.float32, device=x.device) for x in (k, v, pointers[4], z)
    )
    strides, constants = _strides(pointers[:5], q_ids, k_ids), _constants(q, v, gate_q, q_ids, causal, window)
    for start, stop in launch.chunks(queries, 2 * batch * heads * blocks, size):
        carries = q.new_empty(batch, heads, stop - start, blocks, dtype=torch.float32)
        behind = torch.empty_like(carries)
        rest = (scale, last, *strides, *_sizes(q, k, v, pointers[3], start, stop, window))
        of_rows, both = (-(-(stop - start) // size), batch * heads), (grad, delta, norms, carries, behind)
        count_kernels.walk[of_rows](*pointers, carries, carries, carries, *rest, KEEP=True, **constants)
        count_kernels.of_queries[of_rows](*pointers, *both, of_q, of_gate_q, of_z, *rest, **constants)
        count_kernels.of_keys[(blocks, batch * num_kv_heads)](
            *pointers, *both, of_k, of_v, of_gate_k, *rest, **constants
        )
    return of_q, of_k.to(k.dtype), of_v.to(v.dtype), of_gate_q, of_gate_k.to(k.dtype), of_z


@_backward_operator.register_fake
def _(grad, out, norms, q, k, v, gate_q, gate_k, z, q_ids, k_ids, scale, causal, window):  # type: ignore[no-untyped-def]
    gates = q if gate_q is None else gate_q, k if gate_k is None else gate_k
    return tuple(x.new_empty(x.shape) for x in (q, k, v, *gates, z))


def _setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    *tensors, ctx.scale, ctx.causal, ctx.window = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*output, *tensors)


def _differentiate(ctx, grad: Tensor, _: Tensor):  # type: ignore[no-untyped-def]
    out, norms, *tensors = ctx.saved_tensors
    gradients = list(_backward_operator(grad, out, norms, *tensors, ctx.scale, ctx.causal, ctx.window))
    if tensors[3] is None:
        gradients[3:5] = None, None
    return *gradients, *[None] * 5


_operator.register_autograd(_differentiate, setup_context=_setup)
