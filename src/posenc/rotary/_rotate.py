"""The only code that turns pairs of channels.

    half:          x = [ a0 a1 a2 … | b0 b1 b2 … ]       pair j = channels (j, j + pairs)
    interleaved:   x = [ a0 b0 a1 b1 a2 b2 … ]           pair j = channels (2j, 2j + 1)

    (a, b) → (a·cos − b·sin, b·cos + a·sin)

The arithmetic is float32 or better and is rounded once, inside the stack: under a compiler that is the form
with the fewest passes over memory. Autograd of these products keeps the tables and, because the tables need
no gradient, not x.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Layout = Literal["half", "interleaved"]


def rotate_pairs(x: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> Tensor:
    """Turn the pairs of ``x`` (..., dim) by ``cos`` and ``sin`` (..., pairs); channels past 2 · pairs pass through."""
    pairs = cos.shape[-1]
    rotary = 2 * pairs
    if rotary < x.shape[-1]:
        return torch.cat([rotate_pairs(x[..., :rotary], cos, sin, layout), x[..., rotary:]], -1)
    if _complex_view_serves(x, cos, layout):
        turned = torch.view_as_complex(x.view(*x.shape[:-1], pairs, 2)) * torch.complex(cos, sin)
        return torch.view_as_real(turned).flatten(-2)
    axis, split = (-2, (2, pairs)) if layout == "half" else (-1, (pairs, 2))
    a, b = x.to(cos.dtype).view(*x.shape[:-1], *split).unbind(axis)
    return torch.stack([(a * cos - b * sin).to(x.dtype), (b * cos + a * sin).to(x.dtype)], axis).flatten(-2)


def _complex_view_serves(x: Tensor, cos: Tensor, layout: Layout) -> bool:
    """Whether one complex product in eager mode does it: interleaved pairs are complex numbers in memory.

    Compilers and exporters see no complex numbers (ONNX and Apple's GPUs have none).
    """
    return (
        not torch.compiler.is_compiling()
        and not torch.compiler.is_exporting()
        and layout == "interleaved"
        and x.dtype == cos.dtype
        and x.device.type in ("cpu", "cuda")
        and x.stride(-1) == 1
        and x.storage_offset() % 2 == 0
        and all(stride % 2 == 0 for stride in x.stride()[:-1])
    )
