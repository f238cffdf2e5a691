"""PyTorch's fused kernel on CPU, with the norms of its rows, which the public call does not give."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from posenc.attention.tiled.work import Work

_FORWARD = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
_BACKWARD = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu_backward", None)


def available(work: Work) -> bool:
    """Whether this PyTorch has it, and the call lies on CPU."""
    return _FORWARD is not None and _BACKWARD is not None and work.q.device.type == "cpu"


def forward(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Results, and natural logarithms of the rows' norms ``(batch, heads, queries)``; q, k and v of one width."""
    assert _FORWARD is not None
    q, k, v = (t if t.stride(3) == 1 else t.contiguous() for t in (q, k, v))  # the kernel does not ask
    out, norm = _FORWARD(q, k, v, 0.0, False, attn_mask=mask, scale=scale)
    return out, norm


def backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, norm: Tensor, mask: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v. ``out`` and ``norm`` may be those of more keys than k has: shares then add up."""
    assert _BACKWARD is not None
    grad, q, k, v, out = (t if t.stride(3) == 1 else t.contiguous() for t in (grad, q, k, v, out))
    of_q, of_k, of_v = _BACKWARD(grad, q, k, v, out, norm, 0.0, False, attn_mask=mask, scale=scale)
    return of_q, of_k, of_v


def even(work: Work, more: int = 0) -> tuple[Tensor, Tensor, Tensor, int]:
    """q, k and v of one width, keys reversed, and the width of values: that plus ``more`` fits into the one width."""
    value_dim = work.v.shape[3]
    width = max(value_dim + more, work.q.shape[3])
    q, k, v = (F.pad(t, (0, width - t.shape[3])) for t in (work.q, work.k.flip(2), work.v.flip(2)))
    return q, k, v, value_dim
