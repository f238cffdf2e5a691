"""ONNX's operator RotaryEmbedding (opset 23) instead of elementary operators, when an export requests it.

It takes cos and sin of each token, so that angles stay what the table makes them: exact for integer positions.
Source: ONNX, RotaryEmbedding-23; torch.onnx.ops.rotary_embedding (torch 2.8 and newer).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from posenc.tracing import exporting

_requested = False  # a plain flag: tracers read it as a constant


@contextmanager
def request_operator() -> Iterator[None]:
    """Within this context, exported rotations become the ONNX operator where it applies."""
    global _requested
    before, _requested = _requested, True
    try:
        yield
    finally:
        _requested = before


def can(x: Tensor, cos: Tensor) -> bool:
    """Whether this rotation is to be one operator: requested, of four axes, with one float32 table for all heads."""
    if not _requested or not exporting() or x.ndim != 4 or cos.dtype != torch.float32:
        return False
    return cos.ndim == 2 or (cos.ndim == 4 and cos.shape[1] == 1)


def by_operator(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """The pairs of ``x`` (batch, heads, tokens, channels) rotated; in float32 inside, as everywhere."""
    batch, tokens, width = x.shape[0], x.shape[2], 2 * cos.shape[-1]
    rows = (t if t.ndim < 4 else t.squeeze(1) for t in (cos, sin))
    cos, sin = (t.expand(batch, tokens, width // 2) for t in rows)
    partial = 0 if width == x.shape[-1] else width
    rotated: Tensor = torch.onnx.ops.rotary_embedding(
        x.to(cos.dtype), cos, sin, interleaved=interleaved, rotary_embedding_dim=partial
    )
    return rotated.to(x.dtype)
