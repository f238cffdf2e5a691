"""Which rotations, and tables of them, the kernels of `rotation` serve: what `posenc.rotary` asks on a GPU."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from posenc.backends.triton import guard
from posenc.backends.triton.guard import Kind, Results, Run, Size
from posenc.frequencies.phase import Frequencies
from posenc.frequencies.rotation import Layout
from posenc.rotary._kernels import Pair
from posenc.rotary._rotate import rotate_pairs
from posenc.rotary._rotation_table import RotationTable

WIDEST = 256  # of a head


def rotated(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> Pair | None:
    """q and k in one launch, or None where the kernel does not serve them; takes the arguments of `by_kernel`."""
    if not _takes(q, k, cos) or guard.missing(q.device) is not None:
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


def _run(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> Pair:
    from posenc.backends.triton.rotation import rotate_queries_and_keys

    return rotate_queries_and_keys(q, k, cos, sin, layout)


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
    if guard.refusal(kind, positions.device, _run_table, _table_results) is not None:
        return None
    return _run_table(positions, turns, gain)


def _run_table(positions: Tensor, turns: Tensor, gain: float) -> Pair:
    from posenc.backends.triton.rotation import rotation_table

    return rotation_table(positions, turns, gain)


def _table_results(kind: Kind, size: Size, device: torch.device, run: Run) -> tuple[Results, Results]:
    """Tables of near and far tokens, on the CPU in float64 and by the kernel."""
    spread = [-0.3 * 10.0 ** (-4.0 * pair / kind.width) for pair in range(kind.width)]
    places = torch.arange(size[0] * size[4]).view(size[0], size[4]) * 7_654_321 - 12_345
    right = RotationTable.of_numbers(list(spread), 1.1).computed(places, torch.float64)
    came = run(places.to(device), Frequencies(list(spread)).fractions(device), 1.1)
    return tuple({"result": cos, "sin": sin} for cos, sin in (right, [t.cpu().double() for t in came]))  # type: ignore[return-value]
