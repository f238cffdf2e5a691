"""Rotations by coordinates and by polar pairs, and embeddings of coordinates."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tests.fuzz.definition.frequencies import angles, frequencies, geometric, lengths_of, power, spans_length
from tests.fuzz.definition.rotary import COS_ERROR, FRACTION, heads_of, rotated_pairs, waves
from tests.fuzz.definition.terms import Call, Encoded, softplus

NO_POSITION = -(2**31)


def places(positions: Tensor, axes: int) -> tuple[Tensor, Tensor]:
    """Coordinates ``(batch, tokens, axes)``, 0 where there is no place; and where that is, ``(batch, tokens)``."""
    at = positions if axes > 1 else positions.unsqueeze(-1)
    lost = at[..., 0] == NO_POSITION
    return at.masked_fill(lost[..., None], 0), lost


def by_pairs(
    call: Call,
    chosen: list[tuple[int, float]],
    layout: str,
    axes: int,
    *,
    shift: int = 0,
    gain: float = 1.0,
    unplaced: Tensor | None = None,
) -> Call:
    """Each pair is rotated by one coordinate: ``chosen`` is (axis, theta) of each.

    Args:
        unplaced: angles ``(rows, pairs)`` of tokens without a place, which their last coordinate numbers.
    """
    out = []
    for x, positions in ((call.q, call.q_pos), (call.k, call.k_pos)):
        at, lost = places(positions, axes)
        moved = (at + shift).masked_fill(lost[..., None], 0)
        parts = [angles(moved[..., axis], torch.tensor([theta], dtype=torch.float64)) for axis, theta in chosen]
        thetas = torch.tensor([theta for _, theta in chosen], dtype=torch.float64)
        far = moved.double().abs().amax(-1)[:, None, :, None] * (thetas + FRACTION)
        cos, sin = waves(torch.cat(parts, -1)[:, None], call.rounding, far)
        if unplaced is not None:
            number = positions[..., -1].long()
            here = (lost & (number >= 0) & (number < len(unplaced)))[:, None, :, None]
            of_token = unplaced[number.clamp(0, len(unplaced) - 1)][:, None]
            cos, sin = (torch.where(here, f(of_token), wave) for f, wave in ((torch.cos, cos), (torch.sin, sin)))
        strength = torch.where(lost, 1.0, torch.tensor(gain, dtype=torch.float64))[:, None, :, None]
        cos, sin = cos * strength, sin * strength
        if layout == "half-by-axis":
            order = share_by_share(len(chosen) // axes, axes)
            back = sorted(range(len(order)), key=order.__getitem__)
            out.append(call.rounding.stored(rotated_pairs(x[..., order], cos, sin, "half")[..., back]))
        else:
            out.append(call.rounding.stored(rotated_pairs(x, cos, sin, layout)))
    return replace(call, q=out[0], k=out[1])


def share_by_share(pairs: int, axes: int) -> list[int]:
    """Channels, first the earlier ones of all pairs, then the later ones; each axis has a share of 2 · pairs."""
    return [2 * pairs * axis + half * pairs + t for half in range(2) for axis in range(axes) for t in range(pairs)]


CONVENTIONS = {  # layout, base, last axis first, shift
    "rope-vit": ("interleaved", 100.0, True, 0), "qwen-vl": ("half", 1e4, False, 0), "pixtral": ("half", 1e4, False, 0),
    "llama-4": ("interleaved", 1e4, True, 1), "eva-02": ("interleaved", 1e4, False, 0),
    "sam-2": ("interleaved", 1e4, True, 0), "dinov3": ("half", 100.0, False, 0),
    "v-jepa-2": ("interleaved", 1e4, False, 0), "kimi-k2.5": ("half", 1e4, True, 0),
    "visionllama": ("interleaved", 1e4, True, 0), "efficient-loftr": ("interleaved", 1e4, False, 1),
    "gemma-4": ("half-by-axis", 100.0, True, 0),
}  # fmt: skip


def axial(encoded: Encoded, call: Call) -> Call:
    """Axial RoPE: a share of the pairs for each axis."""
    kind, axes = str(encoded.option("convention", "rope-vit")), encoded.count("axes", 2)
    layout, usual, last_first, shift = CONVENTIONS[kind]
    base, pairs = encoded.number("base", usual), encoded.count("head_dim") // axes // 2
    order = list(reversed(range(axes))) if last_first else list(range(axes))
    chosen = []
    for axis in order:
        for t in range(pairs):
            theta = power(base, -t, pairs)
            if kind == "pixtral":  # one list of frequencies, dealt out to the axes alternately
                theta = power(base, -(t * axes + axis), axes * pairs)
            if kind == "dinov3":
                theta = 2 * math.pi * theta
                if encoded.option("min_period") is not None:
                    short, long = encoded.number("min_period", 1), encoded.number("max_period", 1)
                    theta = 2 * math.pi / (short * (long / short) ** (t / max(1, pairs - 1)))
            if encoded.option("frequencies") is not None:
                theta = frequencies_of(encoded, axes)[axis][t]
            chosen.append((axis, theta))
    if kind in ("kimi-k2.5", "visionllama", "efficient-loftr"):  # the first pair of each axis, then the second
        chosen = [chosen[axis * pairs + t] for t in range(pairs) for axis in range(axes)]
    layout, angles = str(encoded.option("layout") or layout), encoded.parameters.get("angles")
    return by_pairs(call, chosen, layout, axes, shift=shift, unplaced=angles)


def frequencies_of(encoded: Encoded, axes: int) -> list[list[float]]:
    """Frequencies of each axis, given for all of them or one by one."""
    rows: list[object] = encoded.option("frequencies")  # type: ignore[assignment]
    return rows if isinstance(rows[0], list) else [rows] * axes  # type: ignore[return-value, list-item]


def order_of(encoded: Encoded) -> list[int]:
    """The axis that each pair of M-RoPE reads."""
    sections, axes = list(encoded.option("sections")), encoded.count("axes", 3)  # type: ignore[call-overload]
    if encoded.option("time_last"):
        left, order = list(sections[:-1]), []
        while any(left):
            for axis, size in enumerate(left):
                if size:
                    order.append(axis + 1)
                    left[axis] -= 1
        return order + [0] * sections[-1]
    if encoded.option("interleaved"):
        order = [0] * sum(sections)
        for axis in range(1, axes):
            for turn in range(sections[axis]):
                if axis + turn * axes < len(order):
                    order[axis + turn * axes] = axis
        return order
    return [number % axes for number, size in enumerate(sections) for _ in range(size)]


def mrope(encoded: Encoded, call: Call) -> Call:
    """M-RoPE: one RoPE, each of whose pairs reads a coordinate; tokens without a place have no gain either."""
    axes, order = encoded.count("axes", 3), order_of(encoded)
    layout = str(encoded.option("layout", "half"))
    spans: list[list[list[float]]] = []
    if spans_length(encoded) and call.length is None:
        of_keys = (call.k_pos.amax(-1), call.known, call.of_keys)
        spans = [lengths_of(*of_keys, of.tolist()) for of in (call.of_queries, call.of_keys)]
    lengths: set[float | None] = {n for rows in spans for row in rows for n in row} if spans else {None}
    if spans_length(encoded) and call.length is not None:
        lengths = {float(call.length)}
    q, k = call.q, call.k
    for length in lengths:
        spectrum = frequencies(encoded, length, base=1_000_000.0)
        chosen = list(zip(order, spectrum.theta.tolist(), strict=True))
        there = by_pairs(call, chosen, layout, axes, gain=spectrum.gain)
        if not spans:
            return there
        here_q, here_k = (torch.tensor(rows)[:, None, :, None] == length for rows in spans)
        q, k = torch.where(here_q, there.q, q), torch.where(here_k, there.k, k)
    return replace(call, q=q, k=k)


def vjepa(encoded: Encoded, call: Call) -> Call:
    """V-JEPA: a third of the channels for each axis; as released, a pair's two channels are rotated differently."""
    width = encoded.count("head_dim")
    pairs = width // 3 // 2
    theta = [power(10_000.0, -t, pairs) for t in range(pairs)]
    if not encoded.option("released"):
        return by_pairs(call, [(axis, t) for axis in range(3) for t in theta], "interleaved", 3)
    out = []
    for x, positions in ((call.q, call.q_pos), (call.k, call.k_pos)):
        at, _ = places(positions, 3)
        columns = list(x.unbind(-1))
        for axis in range(3):
            cos, sin = waves(angles(at[..., axis], torch.tensor(theta, dtype=torch.float64))[:, None], call.rounding)
            for i in range(pairs):
                a, b = x[..., 2 * (axis * pairs + i)], x[..., 2 * (axis * pairs + i) + 1]
                first, second = 2 * i % pairs, (2 * i + 1) % pairs
                columns[2 * (axis * pairs + i)] = a * cos[..., first] - b * sin[..., first]
                columns[2 * (axis * pairs + i) + 1] = b * cos[..., second] + a * sin[..., second]
        out.append(call.rounding.stored(torch.stack(columns, -1)))
    return replace(call, q=out[0], k=out[1])


def mixed(encoded: Encoded, call: Call) -> Call:
    """Mixed RoPE: each pair of each head is rotated by a sum over all coordinates."""
    axes = encoded.count("axes", 2)
    theta = encoded.parameters["theta"] if "theta" in encoded.parameters else _first_directions(encoded)
    out = []
    for x, positions in ((call.q, call.q_pos), (call.k, call.k_pos)):
        at, _ = places(positions, axes)
        rows = heads_of(theta, x.shape[1])  # (heads, axes, pairs)
        total = torch.zeros(())
        for axis in range(axes):
            here = at[..., axis]
            total = total + torch.stack([angles(here, row[axis]) for row in rows], 1)
        far = at.double().abs().sum(-1)[:, None, :, None] * (rows.detach().abs().sum(1)[:, None] + FRACTION)
        cos, sin = waves(total, call.rounding, far)
        out.append(call.rounding.stored(rotated_pairs(x, cos, sin, str(encoded.option("layout", "interleaved")))))
    return replace(call, q=out[0], k=out[1])


def _first_directions(encoded: Encoded) -> Tensor:
    """Frequencies that are not learned, given, or of two axes: ``(num_kv_heads, axes, pairs)``."""
    if encoded.option("frequencies") is not None:
        rows = torch.tensor(encoded.option("frequencies"), dtype=torch.float64)
        return (
            rows if rows.ndim == 3 else rows.expand(encoded.count("num_kv_heads", encoded.count("num_heads")), -1, -1)
        )
    heads, pairs = encoded.count("num_kv_heads", encoded.count("num_heads")), encoded.count("head_dim") // 2
    base = encoded.number("base", 10.0)
    theta = torch.zeros(heads, 2, pairs, dtype=torch.float64)
    for head in range(heads):
        for j in range(pairs):
            if encoded.option("directions") == "axial":  # columns have the first pairs
                half = pairs // 2
                theta[head, 1 - j // half, j] = base ** (-(j % half) / half)
            else:
                way = (head * pairs + j) * math.pi * (math.sqrt(5) - 1) / 2
                theta[head, :, j] = torch.tensor([math.sin(way), math.cos(way)], dtype=torch.float64) * base ** (
                    -j / pairs
                )
    return theta


def liere(encoded: Encoded, call: Call) -> Call:
    """LieRE: each block times exp(Σ_axis p_axis (U_axis − U_axisᵀ))."""
    axes, width = encoded.count("axes", 2), encoded.count("head_dim")
    block = encoded.count("block", width)
    upper = encoded.parameters["generators"]  # (axes, rows, blocks, block (block − 1) / 2)
    row, column = torch.triu_indices(block, block, 1)
    u = torch.zeros(*upper.shape[:-1], block, block, dtype=torch.float64)
    for at, (i, j) in enumerate(zip(row.tolist(), column.tolist(), strict=True)):
        first = torch.zeros(block, block, dtype=torch.float64)
        first[i, j] = 1.0
        u = u + upper[..., at, None, None] * first
    return by_blocks(call, u - u.mT, axes, block)


def comrope(encoded: Encoded, call: Call) -> Call:
    """ComRoPE: each block times exp(t(p) (P − Pᵀ)), t one coordinate (AP) or a sum of all (LD)."""
    axes, block = encoded.count("axes", 2), encoded.count("block", 8)
    p = encoded.parameters["generators"]  # (rows, blocks, block, block)
    skew = p - p.mT
    if encoded.kind == "ComRoPEAP":
        reads = torch.tensor([[float(b % axes == axis) for b in range(p.shape[1])] for axis in range(axes)])[:, None]
    else:
        reads = encoded.parameters["multiplier"].movedim(1, 0)  # (axes, rows | 1, blocks)
    return by_blocks(call, reads.double()[..., None, None] * skew, axes, block)


class Exponential(torch.autograd.Function):
    """exp(A), and its derivative for gradients of any size: PyTorch's own loses the digits of A next to large ones."""

    @staticmethod
    def forward(ctx: Any, power_: Tensor) -> Tensor:
        ctx.save_for_backward(power_)
        rotation: Tensor = torch.linalg.matrix_exp(power_)
        return rotation

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """The corner of exp([[Aᵀ, G], [0, Aᵀ]]), with G of size 1 (Mathias 1996)."""
        transposed, block = ctx.saved_tensors[0].mT, gradient.shape[-1]
        size = gradient.abs().amax((-2, -1), keepdim=True)
        unit = gradient / torch.where(size > 0, size, 1.0)
        both = torch.cat(
            [torch.cat([transposed, unit], -1), torch.cat([torch.zeros_like(transposed), transposed], -1)], -2
        )
        corner: Tensor = torch.linalg.matrix_exp(both)[..., :block, block:]
        return corner * size


def by_blocks(call: Call, generators: Tensor, axes: int, block: int) -> Call:
    """Blocks of channels times exp(Σ_axis p_axis A_axis), A ``(axes, rows, blocks, block, block)`` skew."""
    out = []
    for x, positions in ((call.q, call.q_pos), (call.k, call.k_pos)):
        at, _ = places(positions, axes)
        rows = generators[:, [head * generators.shape[1] // x.shape[1] for head in range(x.shape[1])]]
        power_ = torch.einsum("bta,ahnij->bhtnij", at.double(), rows).contiguous()
        rotation = Exponential.apply(power_)
        far = power_.detach().abs().sum(-1).amax(-1)[..., None, None].expand_as(rotation)
        rotation = call.rounding.near(rotation, COS_ERROR * (1 + (0.1 if block > 8 else 0.0) * far))
        rotation = call.rounding.of_host(rotation, far)
        blocks = rotation.shape[3]
        turning = x[..., : blocks * block].reshape(*x.shape[:-1], blocks, block)
        moved = (rotation @ turning.unsqueeze(-1)).squeeze(-1).flatten(-2)
        out.append(call.rounding.stored(torch.cat([moved, x[..., blocks * block :]], -1)))
    return replace(call, q=out[0], k=out[1])


def pope(encoded: Encoded, call: Call) -> Call:
    """softplus of every channel times the cosine, then times the sine, of its angle; a key's has the bias as well."""
    count = encoded.count("rotary_dim", encoded.count("head_dim"))
    sections: list[int] = list(encoded.option("sections") or [count])  # type: ignore[call-overload]
    bias = encoded.parameters["bias"].clamp(-2 * math.pi, 0.0).unsqueeze(-2)  # (key heads, 1, channels)
    parts = []
    for x, positions, shift in ((call.q, call.q_pos, None), (call.k, call.k_pos, bias)):
        at, _ = places(positions, len(sections))
        angle, far = [], []
        for axis, channels in enumerate(sections):
            theta = geometric(encoded.number("base", 10_000.0), channels, 2 * channels)
            angle.append(angles(at[..., axis], theta))
            far.append(at[..., axis].double().abs()[..., None] * (theta + FRACTION))
        turn, units = torch.cat(angle, -1)[:, None], COS_ERROR
        if shift is not None:  # which may be added to angles, or be rotated by after them
            turn, units = turn + heads_of(shift, x.shape[1]), 3 * COS_ERROR
        cos, sin = waves(turn, call.rounding, torch.cat(far, -1)[:, None], units)
        strength = call.rounding.near(softplus(x[..., :count]))
        polar = torch.cat([call.rounding.stored(strength * wave) for wave in (cos, sin)], -1)
        parts.append(torch.cat([polar, x[..., count:]], -1))
    return replace(call, q=parts[0], k=parts[1])


def random_fourier(encoded: Encoded, positions: Tensor) -> Tensor:
    """Sines, then cosines, of 2π times a sum over the axes."""
    at, lost = places(positions, encoded.count("axes", 2))
    theta = encoded.parameters["frequencies"] * (2 * math.pi)
    total = torch.stack([angles(at[..., axis], row) for axis, row in enumerate(theta)]).sum(0)
    return torch.cat([total.sin(), total.cos()], -1).masked_fill(lost[..., None], 0.0)


def sinusoidal_grid(encoded: Encoded, positions: Tensor) -> Tensor:
    """Channel by channel: which axis, which frequency, sine, cosine or the coordinate itself."""
    axes, dim, family = encoded.count("axes", 2), encoded.count("dim"), str(encoded.option("family", "mae"))
    at, lost = places(positions, axes)
    pairs = -(-dim // (2 * axes)) if family == "interleaved" else dim // (2 * axes)
    below = max(pairs - 1, 1) if family == "simplevit" else pairs

    def wave(axis: int, i: int, kind: str) -> Tensor:
        theta = power(encoded.number("base", 10_000.0), -i, below)
        if family == "perceiver":
            resolution = encoded.option("resolution")
            most = (resolution[axis] if isinstance(resolution, tuple) else resolution) / 2  # type: ignore[operator]
            theta = math.pi * (1 + i * ((most - 1) / max(1, pairs - 1)))
        angle = angles(at[..., axis], torch.tensor([theta], dtype=torch.float64))[..., 0]
        return angle.sin() if kind == "sin" else angle.cos()

    by_wave = [(axis, i, kind) for kind in ("sin", "cos") for axis in range(axes) for i in range(pairs)]
    orders = {
        "mae": [(axis, i, kind) for axis in reversed(range(axes)) for kind in ("sin", "cos") for i in range(pairs)],
        "interleaved": [(axis, i, kind) for axis in range(axes) for i in range(pairs) for kind in ("sin", "cos")],
        "timm": by_wave,
        "perceiver": by_wave,
    }
    channels = [wave(*which) for which in orders["mae" if family == "simplevit" else family]][:dim]
    first = list(at.double().unbind(-1)) if family == "perceiver" else []
    return torch.stack([*first, *channels], -1).masked_fill(lost[..., None], 0.0)
