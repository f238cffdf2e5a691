"""Rotations, and tables of them, by kernels for GPUs, where some serve: eager calls of plain tensors.

`posenc.backends.triton`, which lies above, has them; compilers fuse plain operations instead.
"""

from __future__ import annotations

import torch
from torch import Tensor

from posenc.frequencies.phase import AnyFrequencies, Frequencies
from posenc.frequencies.rotation import Layout
from posenc.operators import KERNELS
from posenc.tracing import has_tangent, has_transforms, tracing, transformed

Pair = tuple[Tensor, Tensor]


def by_kernel(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> Pair | None:
    """Queries and keys (batch, heads, tokens, dim) rotated in one launch, or None where no kernel serves them.

    Args:
        q: the last tokens of k.
        k: of any number of heads, none included.
        cos, sin: of the tokens of k, ``(tokens, pairs)`` or ``(batch | 1, 1, tokens, pairs)``.
        layout: which channels are pairs.
    """
    if not _plain(q, k, cos, sin) or (cos.requires_grad and torch.is_grad_enabled()):
        return None
    kernel = KERNELS.get("rotation")
    rotated: Pair | None = None if kernel is None else kernel(q, k, cos, sin, layout)
    return rotated


def table_by_kernel(positions: Tensor, frequencies: AnyFrequencies, gain: object, dtype: torch.dtype) -> Pair | None:
    """cos and sin of whole positions under constant frequencies in one launch, or None where no kernel serves them."""
    if not (isinstance(frequencies, Frequencies) and isinstance(gain, float) and dtype == torch.float32):
        return None
    if positions.dtype != torch.int64 or not _plain(positions):
        return None
    kernel = KERNELS.get("rotation table")
    table: Pair | None = None if kernel is None else kernel(positions, frequencies, gain)
    return table


def _plain(*tensors: Tensor) -> bool:
    """Whether these are plain tensors of a GPU, outside of compilers, transforms and forward mode."""
    if not all(t.is_cuda and type(t) in (Tensor, torch.nn.Parameter) for t in tensors) or tracing():
        return False
    return not (transformed() and (has_transforms() or has_tangent(tensors)))
