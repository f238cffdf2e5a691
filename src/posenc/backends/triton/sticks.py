"""Stick-breaking on a GPU: operators around the kernels, and the remainder of the sticks.

Forward and backward need memory for the results, one number a query, and, in the backward pass, two numbers for each
query and block of keys, for as many queries at a time as fit `launch.ROOM`. Gradients come without atomic additions:
two runs agree to the last bit.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from posenc.backends.triton import launch, stick_kernels
from posenc.backends.triton.launch import KernelVisibility
from posenc.operators import operator_with_backward
from posenc.structure import Sticks


def attend_sticks(
    q: Tensor, k: Tensor, v: Tensor, sticks: Sticks, scale: float, visibility: KernelVisibility,
    tolerance: float = 2e-9,
) -> Tensor:  # fmt: skip
    """Stick-breaking attention, ``(batch, heads, queries, value_dim)`` in the dtype of q.

    Args:
        q, k, v: as in `attention`, of one dtype, float32 or less.
        sticks: the structure.
        scale: of the products of q and k.
        visibility: which keys each query attends to.
        tolerance: weight of a row that may be left out.
    """
    q, k, v = (launch.row_contiguous(x) for x in (q, k, v))
    enough, drops = -math.log2(tolerance), sticks.remainder == "drop"
    documents, plain = (visibility.q_ids, visibility.k_ids), (visibility.causal, visibility.window)
    results: tuple[Tensor, Tensor] = _operator(
        q, k, v, *documents, scale, *plain, sticks.attend_current, enough, not drops
    )
    return results[0] if drops else with_remainder(*results, q, k, v, sticks, visibility)


def with_remainder(
    out: Tensor, used: Tensor, q: Tensor, k: Tensor, v: Tensor, sticks: Sticks, visibility: KernelVisibility
) -> Tensor:
    """Results in the dtype of q, with what gets the rest of the sticks; ``used``: −log2 of it."""
    left, own_visible = torch.exp2(-used).unsqueeze(-1), _own_key_visible(q, k, visibility)
    if sticks.vector is not None:
        visible = ((used > 0) | own_visible).unsqueeze(-1)
        return (out + torch.where(visible, left, 0.0) * sticks.vector.float().unsqueeze(-2)).to(q.dtype)
    queries, keys = q.shape[2], k.shape[2]
    own_values = F.pad(v[:, :, max(0, keys - queries) :], (0, 0, max(0, queries - keys), 0)).float()
    grouped = torch.where(own_visible.unsqueeze(-1), left, 0.0).view(q.shape[0], k.shape[1], -1, queries, 1)
    return (out + (grouped * own_values.unsqueeze(2)).flatten(1, 2)).to(q.dtype)


def _own_key_visible(q: Tensor, k: Tensor, visibility: KernelVisibility) -> Tensor:
    """Whether each query's own key is there and not hidden, ``(batch | 1, 1, queries)``."""
    queries, keys = q.shape[2], k.shape[2]
    own_key = torch.arange(keys - queries, keys, device=q.device)
    if visibility.q_ids is None or visibility.k_ids is None:
        return (own_key >= 0)[None, None]
    return ((own_key >= 0) & (visibility.k_ids[:, own_key.clamp(min=0)] == visibility.q_ids)).unsqueeze(1)


def _forward(
    q: Tensor, k: Tensor, v: Tensor, q_ids: Tensor | None, k_ids: Tensor | None, scale: float,
    causal: bool, window: int, current: bool, enough: float, wide: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Results without the remainder, in float32 where ``wide``; −log2 of what is left, ``(batch, heads, queries)``."""
    queries = q.shape[2]
    out = q.new_empty(*q.shape[:3], v.shape[3], dtype=torch.float32 if wide else q.dtype)
    used = q.new_empty(q.shape[:3], dtype=torch.float32)
    stick_kernels.walk[launch.row_grid(q, queries)](
        *_pointers(q, k, v, q_ids, k_ids), out, used, used, scale, enough,
        *launch.strides((q, k, v), q_ids, k_ids), *launch.sizes(q, k, 0, queries, window),
        KEEP=False, **launch.constants(q, v, q_ids, causal, window, CURRENT=current),
    )  # fmt: skip
    return out, used


def _pointers(q: Tensor, k: Tensor, v: Tensor, q_ids: Tensor | None, k_ids: Tensor | None) -> tuple[Tensor, ...]:
    """Tensors in the order of kernels; others instead of those that are not there."""
    return q, k, v, q if q_ids is None else q_ids, k if k_ids is None else k_ids


def _backward(
    grad: Tensor, grad_used: Tensor, q: Tensor, k: Tensor, v: Tensor, q_ids: Tensor | None, k_ids: Tensor | None,
    scale: float, causal: bool, window: int, current: bool, enough: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    grad, grad_used = grad.to(q.dtype).contiguous(), grad_used.float().contiguous()
    grad_q = torch.empty_like(q, memory_format=torch.contiguous_format)
    grad_k, grad_v = launch.key_gradients(q, k, k, v)
    pointers, steps = _pointers(q, k, v, q_ids, k_ids), launch.strides((q, k, v), q_ids, k_ids)
    constants = launch.constants(q, v, q_ids, causal, window, CURRENT=current)
    for start, stop, carries, behind in launch.backward_chunks(q, k):
        rest = scale, enough, *steps, *launch.sizes(q, k, start, stop, window)
        rows = launch.row_grid(q, stop - start)
        stick_kernels.walk[rows](*pointers, carries, carries, carries, *rest, KEEP=True, **constants)
        stick_kernels.queries_backward[rows](*pointers, grad, grad_used, carries, behind, grad_q, *rest, **constants)
        stick_kernels.keys_backward[launch.key_grid(q, k)](
            *pointers, grad, carries, behind, grad_k, grad_v, *rest, MORE=start > 0, **constants
        )
    return grad_q, grad_k.to(k.dtype), grad_v.to(v.dtype)


def _fake(q, k, v, q_ids, k_ids, scale, causal, window, current, enough, wide):  # type: ignore[no-untyped-def]
    out = q.new_empty(*q.shape[:3], v.shape[3], dtype=torch.float32 if wide else q.dtype)
    return out, q.new_empty(q.shape[:3], dtype=torch.float32)


_operator = operator_with_backward(
    "attend_sticks",
    _forward,
    _backward,
    fake=_fake,
    fake_backward=lambda grad, grad_used, q, k, v, *rest: tuple(x.new_empty(x.shape) for x in (q, k, v)),
    keep=lambda inputs, outputs: inputs[:-1],
)
