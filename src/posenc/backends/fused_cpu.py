"""PyTorch's fused kernel on CPU, with the norms of its rows, which the public call does not give."""

from __future__ import annotations

import torch
from torch import Tensor

# Not public. The kernels of 2.6 and 2.8 read past the end of k and v where heads share keys; none up to 2.13 was tried.
_RIGHT = torch.__version__ >= "2.13"
_FORWARD = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None) if _RIGHT else None
_BACKWARD = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu_backward", None) if _RIGHT else None


def exists(q: Tensor) -> bool:
    """Whether this PyTorch has it, and a call with such queries lies on CPU."""
    return _FORWARD is not None and _BACKWARD is not None and q.device.type == "cpu"


def forward(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float | None, *, causal: bool = False
) -> tuple[Tensor, Tensor]:
    """Results, and natural logarithms of the rows' norms ``(batch, heads, queries)``; q, k and v of one width."""
    assert _FORWARD is not None
    q, k, v = (t if t.stride(3) == 1 else t.contiguous() for t in (q, k, v))  # the kernel does not ask
    out, norm = _FORWARD(q, k, v, 0.0, causal, attn_mask=mask, scale=scale)
    return out, norm


def backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    norm: Tensor,
    mask: Tensor | None,
    scale: float | None,
    *,
    causal: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v. ``out`` and ``norm`` may cover more keys than k has: shares then add up."""
    assert _BACKWARD is not None
    grad, q, k, v, out = (t if t.stride(3) == 1 else t.contiguous() for t in (grad, q, k, v, out))
    grad_q, grad_k, grad_v = _BACKWARD(grad, q, k, v, out, norm, 0.0, causal, attn_mask=mask, scale=scale)
    return grad_q, grad_k, grad_v
