"""Rotations from generators: the exponential of real skew matrices, with a backward pass that is right everywhere.

    exp(A) = 1 + A + A²/2 + …,   A = −Aᵀ   ⇒   exp(A)ᵀ·exp(A) = 1

Blocks of 2 and 4 have closed forms, which are sines and cosines of one and of two angles. Larger ones go through
`posenc.rotary._squaring`, as one operator that compilers and exporters see as one node: matrix products alone, so that
it runs wherever these do, without complex numbers or an eigensolver. How often it squares depends on the norms; an
accelerator waits once a call for that number.
"""

from __future__ import annotations

import torch
from torch import Tensor

from posenc.encoding import no_autocast
from posenc.rotary import _squaring
from posenc.rotary._blocks import differentiated_otherwise

_IN_CACHE, _IN_MEMORY = 2**17, 2**25  # numbers in a part of the matrices: on the CPU, on accelerators

# so(4) is two copies of so(3): A = P(p) + M(m), which commute, and P² = −|p|², M² = −|m|². With p and m as quaternions
# without a real part, exp(A) is the matrix of q·x·r, q = exp(p), r = exp(m). Rows: 1, i, j, k.
_LEFT = (
    ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)),
    ((0, 1, 0, 0), (-1, 0, 0, 0), (0, 0, 0, 1), (0, 0, -1, 0)),
    ((0, 0, 1, 0), (0, 0, 0, -1), (-1, 0, 0, 0), (0, 1, 0, 0)),
    ((0, 0, 0, 1), (0, 0, 1, 0), (0, -1, 0, 0), (-1, 0, 0, 0)),
)
_RIGHT = (
    ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)),
    ((0, 1, 0, 0), (-1, 0, 0, 0), (0, 0, 0, -1), (0, 0, 1, 0)),
    ((0, 0, 1, 0), (0, 0, 0, 1), (-1, 0, 0, 0), (0, -1, 0, 0)),
    ((0, 0, 0, 1), (0, 0, -1, 0), (0, 1, 0, 0), (-1, 0, 0, 0)),
)


def skew_exponential(generators: Tensor) -> Tensor:
    """exp of the skew part (A − Aᵀ)/2 of real matrices: rotations, orthogonal to rounding at any norm.

    The result is exactly the identity where a generator is zero. First derivatives only, except for blocks of 2 and 4.

    Args:
        generators: ``(..., b, b)``, float32 or float64; lower precisions are computed, and returned, in float32.

    >>> import math
    >>> quarter = torch.tensor([[0.0, -math.pi / 2], [math.pi / 2, 0.0]])
    >>> skew_exponential(quarter).round().abs()
    tensor([[0., 1.],
            [1., 0.]])
    """
    shape = tuple(generators.shape)
    if len(shape) < 2 or shape[-1] != shape[-2] or not generators.is_floating_point():
        raise ValueError(f"generators must be real floating matrices (..., b, b), got {generators.dtype} {shape}")
    wide = generators.to(torch.promote_types(generators.dtype, torch.float32))
    with no_autocast(wide.device.type):
        if shape[-1] == 2:
            return _of_two(wide)
        if shape[-1] == 4:
            return _of_four(wide)
        if differentiated_otherwise():
            rotation: Tensor = torch.linalg.matrix_exp((wide - wide.mT) / 2)
            return rotation
        rotations: Tensor = _operator(wide)
    return rotations


def _of_two(generators: Tensor) -> Tensor:
    angle = (generators[..., 1, 0] - generators[..., 0, 1]) / 2
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([cos, -sin, sin, cos], -1).unflatten(-1, (2, 2))  # type: ignore[no-untyped-call, no-any-return]


def _of_four(generators: Tensor) -> Tensor:
    rotations = [_exponential_of_quaternions(generators, basis) for basis in (_LEFT, _RIGHT)]
    return rotations[0] @ rotations[1]


def _exponential_of_quaternions(generators: Tensor, basis: tuple[tuple[tuple[int, ...], ...], ...]) -> Tensor:
    """exp of the part of the generators that one of the two copies of so(3) spans, as matrices ``(..., 4, 4)``."""
    matrices = torch.tensor(basis, dtype=generators.dtype, device=generators.device).flatten(1)
    part = generators.flatten(-2) @ matrices[1:].T / 4  # each of the three has four entries ±1
    cos, sinc = _cos_and_sinc(part.square().sum(-1, keepdim=True))
    return (torch.cat([cos, sinc * part], -1) @ matrices).unflatten(-1, (4, 4))  # type: ignore[no-untyped-call, no-any-return]


def _cos_and_sinc(squared: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin(r)/r of r = √squared, with finite derivatives at zero: up to r² = 0.1 by their series."""
    near = squared < 0.1
    root = torch.where(near, 1.0, squared).sqrt()
    small = torch.where(near, squared, 0.0)
    cos, sinc = torch.ones_like(small), torch.ones_like(small)
    for k in range(8, 0, -1):
        cos = 1 - small / ((2 * k - 1) * (2 * k)) * cos
        sinc = 1 - small / ((2 * k) * (2 * k + 1)) * sinc
    return torch.where(near, cos, root.cos()), torch.where(near, sinc, root.sin() / root)


@torch.library.custom_op("posenc::skew_exponential", mutates_args=())
def _operator(generators: Tensor) -> Tensor:
    out = torch.empty(generators.shape, dtype=generators.dtype, device=generators.device)
    with no_autocast(generators.device.type):
        for source, target in zip(_parts(generators), _parts(out), strict=True):
            target.copy_(_squaring.exponential(_squaring.skew(_working(source))))
    return out


@_operator.register_fake
def _(generators: Tensor) -> Tensor:
    return torch.empty(generators.shape, dtype=generators.dtype, device=generators.device)


@torch.library.custom_op("posenc::skew_exponential_backward", mutates_args=())
def _backward_operator(grad: Tensor, generators: Tensor) -> Tensor:
    out = torch.empty(generators.shape, dtype=generators.dtype, device=generators.device)
    with no_autocast(generators.device.type):
        for of_part, source, target in zip(_parts(grad), _parts(generators), _parts(out), strict=True):
            target.copy_(_squaring.gradient(_squaring.skew(_working(source)), _working(of_part)))
    return out


@_backward_operator.register_fake
def _(grad: Tensor, generators: Tensor) -> Tensor:
    return torch.empty(generators.shape, dtype=generators.dtype, device=generators.device)


def _setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs)


def _differentiate(ctx, grad: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
    gradient: Tensor = _backward_operator(grad, *ctx.saved_tensors)
    return gradient


_operator.register_autograd(_differentiate, setup_context=_setup)


def _parts(matrices: Tensor) -> tuple[Tensor, ...]:
    """The matrices ``(n, b, b)`` in parts whose working memory stays in a core's cache."""
    flat = matrices.reshape(-1, *matrices.shape[-2:])
    size = _IN_CACHE if matrices.device.type == "cpu" else _IN_MEMORY
    return torch.split(flat, max(1, size // max(1, flat.shape[-1] ** 2))) if flat.shape[0] else ()


def _working(matrices: Tensor) -> Tensor:
    """In float64 where matrix products of float32 may lose digits (TF32): squaring would multiply that loss."""
    exact = torch.get_float32_matmul_precision() == "highest" or matrices.device.type == "mps"
    return matrices if exact else matrices.double()
