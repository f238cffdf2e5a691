"""Queries and keys rotated in one launch and one pass over memory: what `posenc.rotary` defines, for both layouts.

    half:          x = [ a0 a1 a2 … | b0 b1 b2 … ]        interleaved:   x = [ a0 b0 a1 b1 a2 b2 … ]
    (a, b) → (a·cos − b·sin, b·cos + a·sin)                backwards: by the opposite angles

In float32, rounded once. The backward pass is the same kernel with −sin; it keeps the table and neither q nor k. The
table itself, cos and sin of exact angles, takes one launch too. `rotated` and `table` are what `posenc.rotary` asks.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor

from posenc.backends.triton import guard, launch
from posenc.backends.triton.guard import Kind, Results, Run, Size
from posenc.frequencies.phase import Frequencies
from posenc.frequencies.rotation import Layout
from posenc.operators import operator_with_backward
from posenc.rotary._kernels import Pair
from posenc.rotary._rotate import rotate_pairs
from posenc.rotary._rotation_table import RotationTable

TOKENS = 32  # of a tile; not measured
WARPS = 4
WIDEST = 256  # of a head


def rotated(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> Pair | None:
    """q and k in one launch, or None where the kernel does not serve them; takes the arguments of `by_kernel`."""
    if not _takes(q, k, cos) or guard.missing(q.device) is not None:
        return None
    kind = Kind("rotation", (layout,), q.dtype, q.shape[3], 2 * cos.shape[-1], True)
    if guard.refusal(kind, q.device, rotate_queries_and_keys, _results) is not None:
        return None
    return rotate_queries_and_keys(q, k, cos, sin, layout)


def _takes(q: Tensor, k: Tensor, cos: Tensor) -> bool:
    """Whether the kernel knows calls of such shapes and dtypes."""
    if q.dtype != k.dtype or q.dtype not in guard.TOLERANCES or cos.dtype != torch.float32:
        return False
    per_row = cos.ndim == 2 or (cos.ndim == 4 and cos.shape[1] == 1 and cos.shape[0] in (1, q.shape[0]))
    fits = q.ndim == 4 and q.shape[3] <= WIDEST and cos.shape[-2] == k.shape[2]
    return fits and per_row and q.numel() > 0


def _results(kind: Kind, size: Size, device: torch.device, run: Run) -> tuple[Results, Results]:
    """What is right, in float64 on the CPU, and what the kernel makes of the last queries and all keys of a text."""
    (batch, heads, kv_heads, queries, keys), layout = size, cast(Layout, kind.flags[0])
    angles = guard.drawn((batch, 1, keys, kind.value_width // 2), seed=4)
    table = angles.cos(), angles.sin()
    shapes = (batch, heads, queries, kind.width), (batch, kv_heads, keys, kind.width)
    numbers = [guard.drawn(shape, seed=seed).to(kind.dtype) for seed, shape in enumerate(shapes)]
    targets = [guard.drawn(shape, seed=seed + 2).to(kind.dtype) for seed, shape in enumerate(shapes)]
    right, came = [x.double().requires_grad_() for x in numbers], [x.to(device).requires_grad_() for x in numbers]
    cos, sin = (t.double() for t in table)
    late_cos, late_sin = (t[:, :, keys - queries :] for t in (cos, sin))
    outs = [
        (rotate_pairs(right[0], late_cos, late_sin, layout), rotate_pairs(right[1], cos, sin, layout)),
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


def table(positions: Tensor, frequencies: Frequencies, gain: float) -> Pair | None:
    """cos and sin in one launch, or None; takes the arguments of `table_by_kernel`."""
    turns = frequencies.fractions(positions.device)
    if turns.ndim != 1 or len(turns) > WIDEST or positions.numel() == 0 or guard.missing(positions.device) is not None:
        return None
    kind = Kind("rotation table", (), torch.float32, len(turns), len(turns), False)
    if guard.refusal(kind, positions.device, rotation_table, _table_results) is not None:
        return None
    return rotation_table(positions, turns, gain)


def _table_results(kind: Kind, size: Size, device: torch.device, run: Run) -> tuple[Results, Results]:
    """Tables of near and far tokens, on the CPU in float64 and by the kernel."""
    spread = [-0.3 * 10.0 ** (-4.0 * pair / kind.width) for pair in range(kind.width)]
    places = torch.arange(size[0] * size[4]).view(size[0], size[4]) * 7_654_321 - 12_345
    right = RotationTable.of_numbers(list(spread), 1.1).computed(places, torch.float64)
    came = run(places.to(device), Frequencies(list(spread)).fractions(device), 1.1)
    return tuple({"result": cos, "sin": sin} for cos, sin in (right, [t.cpu().double() for t in came]))  # type: ignore[return-value]


def rotation_table(positions: Tensor, turns: Tensor, gain: float) -> tuple[Tensor, Tensor]:
    """cos and sin ``(*positions.shape, pairs)``, float32, times the gain, without gradients.

    Args:
        positions: int64, of any shape.
        turns: int64 ``(pairs,)``, frequencies as `Frequencies.fractions` gives them.
        gain: a factor.
    """
    from posenc.backends.triton import rotation_kernels

    positions, pairs = positions.contiguous(), len(turns)
    cos = torch.empty(*positions.shape, pairs, dtype=torch.float32, device=positions.device)
    sin = torch.empty_like(cos)
    rotation_kernels.table[(-(-positions.numel() // TOKENS),)](
        positions, turns, cos, sin, positions.numel(), pairs, RADIANS=2 * math.pi / 2**64, GAIN=gain, ROWS=TOKENS,
        PAIRS=1 << (pairs - 1).bit_length(), num_warps=WARPS,
    )  # fmt: skip
    return cos, sin


def rotate_queries_and_keys(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
    """q and k rotated by one table; channels past 2 · pairs pass through.

    Args:
        q: ``(batch, heads, queries, head_dim)``, the last of the tokens.
        k: ``(batch, num_kv_heads, tokens, head_dim)``, in the dtype of q: float32 or less; num_kv_heads may be 0.
        cos, sin: ``(tokens, pairs)`` or ``(batch | 1, 1, tokens, pairs)``, float32; without gradients.
        layout: which channels are pairs.
    """
    cos, sin = (t.reshape(-1, *t.shape[-2:]).contiguous() for t in (cos, sin))
    rotated: tuple[Tensor, Tensor] = _operator(q, k, cos, sin, layout == "half", False)
    return rotated


def _forward(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, half: bool, inverse: bool) -> tuple[Tensor, Tensor]:
    from posenc.backends.triton import rotation_kernels

    (batch, heads, queries, width), (num_kv_heads, tokens), pairs = q.shape, k.shape[1:3], cos.shape[-1]
    q, k = launch.row_contiguous(q), launch.row_contiguous(k)
    new_q, new_k = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k))
    rest = width - 2 * pairs
    rotation_kernels.rotate[(batch * (heads + num_kv_heads), -(-tokens // TOKENS))](
        q, k, cos, sin, new_q, new_k, *launch.strides((q, k)),
        0 if cos.shape[0] == 1 else cos.stride(0), cos.stride(1), heads, num_kv_heads, queries, tokens, width, pairs,
        HALF=half, INVERSE=inverse, ROWS=TOKENS, PAIRS=1 << (pairs - 1).bit_length(),
        REST=0 if rest == 0 else 1 << (rest - 1).bit_length(), num_warps=WARPS,
    )  # fmt: skip
    return new_q, new_k


def _backward(
    grad_q: Tensor, grad_k: Tensor, cos: Tensor, sin: Tensor, half: bool, inverse: bool
) -> tuple[Tensor, Tensor]:
    rotated: tuple[Tensor, Tensor] = _operator(grad_q, grad_k, cos, sin, half, not inverse)
    return rotated


_operator = operator_with_backward(
    "rotate_queries_and_keys",
    _forward,
    _backward,
    fake=lambda q, k, cos, sin, half, inverse: (q.new_empty(q.shape), k.new_empty(k.shape)),
    fake_backward=None,  # it is the operator itself, of any order
    keep=lambda inputs, outputs: inputs[2:],
)
