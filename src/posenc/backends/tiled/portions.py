"""Heads as the fused kernel takes them: of one width, with keys and values reversed, some at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor
from torch.nn import functional as F

from posenc.backends import fused_cpu
from posenc.backends.tiled.tiled_call import ELEMENTS, TiledCall


def available(call: TiledCall) -> bool:
    """Whether this PyTorch has it, the call lies on CPU, and it knows all that is done to scores and weights."""
    return call.kernels and fused_cpu.exists(call.q)


class Portion(NamedTuple):
    """Some heads as the kernel takes them: of one width, with keys and values reversed."""

    kv: slice
    heads: slice
    q: Tensor
    k: Tensor
    v: Tensor

    def close(self, of_call: tuple[Tensor, ...], of_k: Tensor, of_v: Tensor) -> None:
        """Put the gradients of reversed keys and values in their places in the gradients of q, k and v."""
        for total, part in zip(of_call[1:], (of_k, of_v), strict=True):
            total[:, self.kv] = part.flip(2)[..., : total.shape[3]]

    def widened(self, x: Tensor) -> Tensor:
        """The portion of a tensor ``(batch, heads, queries, any)``, as wide as the others."""
        return _wide(x[:, self.heads], self.q.shape[3])


def portions(call: TiledCall, strips: list[tuple[int, int]], more: int = 0) -> Iterator[Portion]:
    """All key heads, strip by strip, no more at a time than `ELEMENTS` numbers of keys.

    Args:
        call: the call.
        strips: ranges of key heads.
        more: channels beyond those of the values.
    """
    group, width = call.q.shape[1] // call.k.shape[1], max(call.v.shape[3] + more, call.q.shape[3])
    most = max(1, ELEMENTS // (call.k.shape[0] * call.k.shape[2] * width))
    for first, last in strips:
        for low in range(first, last, most):
            kv = slice(low, min(low + most, last))
            heads = slice(kv.start * group, kv.stop * group)
            k, v = (_wide(t[:, kv].flip(2), width) for t in (call.k, call.v))
            yield Portion(kv, heads, _wide(call.q[:, heads], width), k, v)


def _wide(x: Tensor, width: int) -> Tensor:
    return x if x.shape[3] == width else F.pad(x, (0, width - x.shape[3]))
