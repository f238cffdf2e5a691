"""Where the frequency vectors of mixed RoPE point: in random frames, along the axes, or evenly over all directions.

    frames:   theta[h, :, (g, t)] = base^(−t / n) · u_g(h),  u_0 … u_(axes−1) a frame of axes of head h
    golden:   theta[h, :, j]      = base^(−j / pairs) · u(h · pairs + j),  u a direction of its own

In two dimensions u(k) has the angle k · π(√5 − 1)/2; a direction and its opposite are one, so 180° cover all.
In more, u(k) is the k-th point of Roberts' R_d sequence through the normal distribution's quantiles, which makes a
cube a ball, at length 1.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import torch
from torch import Tensor

from posenc.frequencies.spectrum import host_float64

_GOLDEN = math.pi * (math.sqrt(5) - 1) / 2


def random_frames(heads: int, axes: int) -> Tensor:
    """A random frame of axes for each head, float64 ``(heads, axes, axes)``: row g holds the coordinates of u_g."""
    if axes == 2:
        return turned_frames(torch.rand(heads, dtype=torch.float64, device="cpu") * 2 * math.pi)
    gaussian = torch.randn(heads, axes, axes, dtype=torch.float64, device="cpu")
    q, r = torch.linalg.qr(gaussian)
    frames: Tensor = q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)  # else QR prefers some frames
    return frames


def turned_frames(phi: Tensor) -> Tensor:
    """Frames of two axes (row, column) whose first vector lies phi away from the column axis, as rope-vit has them."""
    frames = [torch.stack([(phi + g * math.pi / 2).sin(), (phi + g * math.pi / 2).cos()], -1) for g in range(2)]
    return torch.stack(frames, -2)


def along_axes(heads: int, axes: int) -> Tensor:
    """The frame of the last axis first, for each head: rope-vit's axial RoPE."""
    return torch.eye(axes, dtype=torch.float64, device="cpu").flip(0).expand(heads, axes, axes)


def frequencies_in_frames(frames: Tensor, pairs: int, base: float) -> Tensor:
    """Frequencies ``(heads, axes, pairs)``: each vector of a frame has a share of the pairs, from fast to slow."""
    axes = frames.shape[-1]
    share = -(-pairs // axes)  # the last vector has what is left
    sizes = host_float64([base ** (-(j % share) / share) for j in range(pairs)])
    theta: Tensor = frames[:, [j // share for j in range(pairs)]].mT * sizes
    return theta


def golden_frequencies(heads: int, axes: int, pairs: int, base: float) -> list[list[list[float]]]:
    """Frequencies ``[heads][axes][pairs]`` of which each points in a direction of its own; the same at every call."""
    frequencies = []
    for head in range(heads):
        vectors = [_direction(head * pairs + j, axes) for j in range(pairs)]
        sizes = [base ** (-j / pairs) for j in range(pairs)]
        frequencies.append([[size * v[axis] for size, v in zip(sizes, vectors, strict=True)] for axis in range(axes)])
    return frequencies


def _direction(k: int, axes: int) -> list[float]:
    """The k-th of directions that lie evenly over the sphere, however many there are."""
    if axes == 1:
        return [1.0]
    if axes == 2:
        return [math.sin(k * _GOLDEN), math.cos(k * _GOLDEN)]
    ratio = 2.0
    for _ in range(64):  # the root of x^(axes + 1) = x + 1, the golden ratio in one dimension
        ratio = (1 + ratio) ** (1 / (axes + 1))
    point = [NormalDist().inv_cdf(((k + 1) * ratio ** -(axis + 1)) % 1.0) for axis in range(axes)]
    return [x / math.hypot(*point) for x in point]
