"""Which rotations the Triton kernel of `rotation` serves: what `posenc.rotary` asks on a GPU, call by call."""

from __future__ import annotations

import functools
from importlib.util import find_spec

import torch
from torch import Tensor

from posenc.backends.triton import guard
from posenc.backends.triton.guard import Kind, Results, Run, Size
from posenc.frequencies.rotation import Layout
from posenc.rotary import _rotate

CAPABILITY = (8, 0)
WIDEST = 256  # of a head


def rotated(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> tuple[Tensor, Tensor] | None:
    """q and k in one launch, or None where the kernel does not serve them; takes the arguments of `by_kernel`."""
    if not _takes(q, k, cos) or not _has_kernel(q.device):
        return None
    kind = Kind("rotation", (layout,), q.dtype, q.shape[3], 2 * cos.shape[-1], True)
    if guard.refusal(kind, q.device, _run, _results) is not None:
        return None
    return _run(q, k, cos, sin, layout)


def _takes(q: Tensor, k: Tensor, cos: Tensor) -> bool:
    """Whether the kernel knows calls of such shapes and dtypes."""
    if q.dtype != k.dtype or q.dtype not in guard.TOLERANCES or cos.dtype != torch.float32:
        return False
    per_row = cos.ndim == 2 or (cos.ndim == 4 and cos.shape[1] == 1 and cos.shape[0] in (1, q.shape[0]))
    fits = q.ndim == 4 and q.shape[3] <= WIDEST and cos.shape[-2] == k.shape[2]
    return fits and per_row and q.numel() > 0


@functools.cache
def _has_kernel(device: torch.device) -> bool:
    """Whether a GPU is of those that the kernel was made for, and Triton is there."""
    if torch.version.hip is not None or find_spec("triton") is None:
        return False
    return torch.cuda.get_device_capability(device) >= CAPABILITY


def _run(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
    from posenc.backends.triton.rotation import rotate_queries_and_keys

    return rotate_queries_and_keys(q, k, cos, sin, layout)


def _results(kind: Kind, size: Size, device: torch.device, run: Run) -> tuple[Results, Results]:
    """What is right, in float64 on the CPU, and what the kernel makes of the last queries and all keys of a text."""
    (batch, heads, kv_heads, queries, keys), (layout,) = size, kind.flags
    angles = guard.drawn((batch, 1, keys, kind.value_width // 2), seed=4)
    table = angles.cos(), angles.sin()
    shapes = (batch, heads, queries, kind.width), (batch, kv_heads, keys, kind.width)
    numbers = [guard.drawn(shape, seed=seed).to(kind.dtype) for seed, shape in enumerate(shapes)]
    targets = [guard.drawn(shape, seed=seed + 2).to(kind.dtype) for seed, shape in enumerate(shapes)]
    right, came = [x.double().requires_grad_() for x in numbers], [x.to(device).requires_grad_() for x in numbers]
    late = [t[:, :, keys - queries :].double() for t in table]
    whole = [t.double() for t in table]
    outs = [
        (_rotate.rotate_pairs(right[0], *late, layout), _rotate.rotate_pairs(right[1], *whole, layout)),
        run(*came, *(t.to(device) for t in table), layout),
    ]
    results = []
    for inputs, out in zip((right, came), outs, strict=True):
        gradients = torch.autograd.grad(
            out, inputs, [t.to(x.device, x.dtype) for t, x in zip(targets, out, strict=True)]
        )
        named = zip(("result", "keys' result", "q", "k"), (*out, *gradients), strict=True)
        results.append({name: x.detach().cpu().double() for name, x in named})
    return results[0], results[1]


_rotate.KERNELS.append(rotated)
