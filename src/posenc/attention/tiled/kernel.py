"""PyTorch's fused kernel on CPU, with the norms of its rows, which the public call does not give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from posenc.attention.tiled.work import ELEMENTS, Work

# Not public. Those of 2.6 and 2.8 read past the end of k and v where heads share keys; none up to 2.13 was tried.
_RIGHT = torch.__version__ >= "2.13"
_FORWARD = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None) if _RIGHT else None
_BACKWARD = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu_backward", None) if _RIGHT else None


def available(work: Work) -> bool:
    """Whether this PyTorch has it, the call lies on CPU, and it knows all that is done to scores and weights."""
    return work.kernels and exists(work.q)


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
    """Gradients of q, k and v. ``out`` and ``norm`` may be those of more keys than k has: shares then add up."""
    assert _BACKWARD is not None
    grad, q, k, v, out = (t if t.stride(3) == 1 else t.contiguous() for t in (grad, q, k, v, out))
    of_q, of_k, of_v = _BACKWARD(grad, q, k, v, out, norm, 0.0, causal, attn_mask=mask, scale=scale)
    return of_q, of_k, of_v


class Portion(NamedTuple):
    """Some heads as the kernel takes them: of one width, with keys and values reversed."""

    kv: slice
    heads: slice
    q: Tensor
    k: Tensor
    v: Tensor

    def close(self, of_call: tuple[Tensor, ...], of_k: Tensor, of_v: Tensor) -> None:
        """Put the gradients of reversed keys and values where they belong among those of q, k and v."""
        for total, part in zip(of_call[1:], (of_k, of_v), strict=True):
            total[:, self.kv] = part.flip(2)[..., : total.shape[3]]

    def widened(self, x: Tensor) -> Tensor:
        """The portion of a tensor ``(batch, heads, queries, any)``, as wide as the others."""
        return _wide(x[:, self.heads], self.q.shape[3])


def portions(work: Work, strips: list[tuple[int, int]], more: int = 0) -> Iterator[Portion]:
    """All key heads, strip by strip, no more at a time than `ELEMENTS` numbers of keys.

    Args:
        work: the call.
        strips: ranges of key heads.
        more: channels beyond those of the values.
    """
    group, width = work.q.shape[1] // work.k.shape[1], max(work.v.shape[3] + more, work.q.shape[3])
    most = max(1, ELEMENTS // (work.k.shape[0] * work.k.shape[2] * width))
    for first, last in strips:
        for low in range(first, last, most):
            kv = slice(low, min(low + most, last))
            heads = slice(kv.start * group, kv.stop * group)
            k, v = (_wide(t[:, kv].flip(2), width) for t in (work.k, work.v))
            yield Portion(kv, heads, _wide(work.q[:, heads], width), k, v)


def _wide(x: Tensor, width: int) -> Tensor:
    return x if x.shape[3] == width else F.pad(x, (0, width - x.shape[3]))
