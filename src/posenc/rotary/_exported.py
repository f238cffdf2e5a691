"""ONNX's operator RotaryEmbedding (opset 23) in the place of plain operators, while an export asks for it.

It takes cos and sin of each token, so that angles stay what the table makes them: exact for integer positions.
Source: ONNX, RotaryEmbedding-23; torch.onnx.ops.rotary_embedding (torch 2.8 and newer).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from posenc.tracing import exporting

_asked = False  # a plain flag: tracers read it as a constant


@contextmanager
def asked() -> Iterator[None]:
    """Rotations that are exported meanwhile become the operator where they can."""
    global _asked
    before, _asked = _asked, True
    try:
        yield
    finally:
        _asked = before


def can(x: Tensor, cos: Tensor) -> bool:
    """Whether this rotation is to be one operator: asked for, of four axes, with one float32 table for all heads."""
    if not _asked or not exporting() or x.ndim != 4 or cos.dtype != torch.float32:
        return False
    return cos.ndim == 2 or (cos.ndim == 4 and cos.shape[1] == 1)


def by_operator(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """The pairs of ``x`` (batch, heads, tokens, channels) rotated; in float32 inside, as everywhere."""
    batch, tokens, width = x.shape[0], x.shape[2], 2 * cos.shape[-1]
    rows = (t if t.ndim < 4 else t.squeeze(1) for t in (cos, sin))
    cos, sin = (t.expand(batch, tokens, width // 2) for t in rows)
    partial = 0 if width == x.shape[-1] else width
    turned: Tensor = torch.onnx.ops.rotary_embedding(
        x.to(cos.dtype), cos, sin, interleaved=interleaved, rotary_embedding_dim=partial
    )
    return turned.to(x.dtype)
