"""Rotations from generators: the exponential of real skew matrices, with a backward pass that is right everywhere.

    exp(A) = 1 + A + A²/2 + …,   A = −Aᵀ   ⇒   exp(A)ᵀ·exp(A) = 1

Blocks of 2 and 4 have closed forms, which are sines and cosines of one and of two angles: plain operations, which
compilers fuse and ONNX knows. Larger ones are `torch.linalg.matrix_exp` wherever a tracer or a transform looks on, and
elsewhere the same by scaling, a polynomial and squarings, whose derivative is a third as dear: `torch`'s own makes
matrices of twice the size.

Source of the polynomial: Bader, Blanes and Casas, Computing the Matrix Exponential with an Optimized Taylor Polynomial
    Approximation, Mathematics 7 (2019) 1174, section 3.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from posenc.constants import constant
from posenc.encoding import no_autocast
from posenc.rotary._blocks import differentiated_otherwise
from posenc.tracing import has_values

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
# The series of exp up to degree 18 in five products. Columns: the weights of 1, X, X², X³, X⁶ in five sums.
_WEIGHTS = (
    (0.0, -1.00365581030144618291e-01, -8.02924648241156932449e-03, -8.92138498045729985177e-04, 0.0),
    (0.0, 3.97849749499645077844e-01, 1.36783778460411720168, 4.98289622525382669416e-01, -6.37898194594723280150e-04),
    (-1.09676396052962061844e01, 1.68015813878906206114, 5.71779846478865511061e-02, -6.98210122488052056106e-03,
     3.34975017086070470649e-05),
    (-9.04316832390810593223e-02, -6.76404519071381882256e-02, 6.75961301770459654925e-02, 2.95552570429315521194e-02,
     -1.39180257516060693404e-05),
    (0.0, 0.0, -9.23364619367118555360e-02, -1.69364939002081722752e-02, -1.40086798182036094347e-05),
)  # fmt: skip
_REACH = {torch.float32: 1.5, torch.float64: 1.0}  # norms up to which the polynomial is right to rounding
_MOST_SQUARINGS = 1000  # past any finite float64
_IN_CACHE, _IN_MEMORY = 2**17, 2**25  # numbers in a part of the matrices: on the CPU, on accelerators


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
        if not has_values(wide) or differentiated_otherwise():
            # how often to square depends on the numbers, so stand-ins get the operator that finds out by itself
            rotation: Tensor = torch.linalg.matrix_exp(_skew(wide))
            return rotation
        rotations: Tensor = _Exponential.apply(wide)  # type: ignore[no-untyped-call]
    return rotations


def _of_two(generators: Tensor) -> Tensor:
    angle = (generators[..., 1, 0] - generators[..., 0, 1]) / 2
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([cos, -sin, sin, cos], -1).unflatten(-1, (2, 2))  # type: ignore[no-untyped-call, no-any-return]


def _of_four(generators: Tensor) -> Tensor:
    # so(4) is two copies of so(3) that commute, so exp is the product of theirs: each a unit quaternion
    rotations = [_exponential_of_quaternions(generators, basis) for basis in (_LEFT, _RIGHT)]
    return rotations[0] @ rotations[1]


def _exponential_of_quaternions(generators: Tensor, basis: tuple[tuple[tuple[int, ...], ...], ...]) -> Tensor:
    """exp of the part of the generators that one of the two copies of so(3) spans, as matrices ``(..., 4, 4)``."""
    matrices = constant(basis, generators.dtype, generators.device).flatten(1)
    part = generators.flatten(-2) @ matrices[1:].T / 4  # each of the three has four entries ±1
    cos, sinc = _cos_and_sinc(part.square().sum(-1, keepdim=True))
    return (torch.cat([cos, sinc * part], -1) @ matrices).unflatten(-1, (4, 4))  # type: ignore[no-untyped-call, no-any-return]


def _cos_and_sinc(squared: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin(r)/r of r = √squared, with finite derivatives at zero: up to r² = 0.1 by their series."""
    near = squared < 0.1
    root = torch.where(near, 1.0, squared).sqrt()  # 1 where the series serves: √ has no derivative at zero
    small = torch.where(near, squared, 0.0)
    cos, sinc = torch.ones_like(small), torch.ones_like(small)
    for k in range(8, 0, -1):
        cos = 1 - small / ((2 * k - 1) * (2 * k)) * cos
        sinc = 1 - small / ((2 * k) * (2 * k + 1)) * sinc
    return torch.where(near, cos, root.cos()), torch.where(near, sinc, root.sin() / root)


class _Exponential(torch.autograd.Function):
    """exp of the skew part of matrices, some at a time, so that all that a part needs stays in a core's cache.

    The backward pass computes a part anew and differentiates its products one by one. They divide by nothing, and so
    are as right at zero and at repeated eigenvalues as anywhere else.
    """

    @staticmethod
    def forward(ctx: Any, generators: Tensor) -> Tensor:
        ctx.save_for_backward(generators)
        out = torch.empty(generators.shape, dtype=generators.dtype, device=generators.device)
        for part, rotations in zip(_parts(generators), _parts(out), strict=True):
            rotations.copy_(_squared(_working(part)))
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (generators,) = ctx.saved_tensors
        out = torch.empty(generators.shape, dtype=generators.dtype, device=generators.device)
        with torch.enable_grad(), no_autocast(grad.device.type):
            for part, upstream, gradient in zip(_parts(generators), _parts(grad), _parts(out), strict=True):
                leaf = _working(part).detach().requires_grad_()
                rotations = _squared(leaf)
                gradient.copy_(torch.autograd.grad(rotations, leaf, upstream.to(rotations.dtype))[0])
        return out


def _parts(matrices: Tensor) -> tuple[Tensor, ...]:
    """The matrices ``(n, b, b)``, some at a time."""
    flat = matrices.reshape(-1, *matrices.shape[-2:])
    size = _IN_CACHE if matrices.device.type == "cpu" else _IN_MEMORY
    return torch.split(flat, max(1, size // max(1, flat.shape[-1] ** 2))) if flat.shape[0] else ()


def _working(matrices: Tensor) -> Tensor:
    """In float64 where matrix products of float32 may lose digits (TF32): squaring would multiply that loss."""
    exact = torch.get_float32_matmul_precision() == "highest" or matrices.device.type == "mps"
    return matrices if exact else matrices.double()


def _squared(matrices: Tensor) -> Tensor:
    """exp of the skew part A of ``(n, b, b)``, as exp(A / 2^s) squared s times; the largest angle tells s for all.

    Squaring doubles what a matrix lacks to be orthogonal, so every few steps X(3 − XᵀX)/2 takes that away; errors then
    stay near those of rounding A itself.
    """
    skew = _skew(matrices)
    detached = skew.detach()
    # a bound on the largest angle: the 1-norm, or what all entries together allow, as angles come in pairs
    entries = torch.linalg.vector_norm(detached, dim=(-2, -1)) / math.sqrt(2)
    norms = torch.minimum(detached.abs().sum(-1).amax(-1), entries)
    largest, reach = float(norms.nan_to_num(0.0, 0.0, 0.0).amax()), _REACH[skew.dtype]
    steps = min(_MOST_SQUARINGS, math.ceil(math.log2(largest / reach))) if largest > reach else 0
    rotations = _polynomial(skew * 0.5**steps)
    for step in range(1, steps + 1):
        rotations = _nearest_orthogonal(rotations) if step % 4 == 0 else rotations
        rotations = rotations @ rotations
    # at A = 0 exactly the identity, and 1 + A has the derivative that exp has there
    return torch.where((norms == 0)[:, None, None], _identity_like(skew) + skew, _nearest_orthogonal(rotations))


def _polynomial(x: Tensor) -> Tensor:
    """The series of exp up to degree 18."""
    square = x @ x
    cube = square @ x
    powers = torch.stack([_identity_like(x).expand_as(x), x, square, cube, cube @ cube])
    weights = constant(_WEIGHTS, x.dtype, x.device)
    left, rest, shift, middle, right = (weights @ powers.flatten(1)).view_as(powers).unbind()
    ninth = torch.baddbmm(middle, left, right)  # of degree 9; its product with itself brings degree 18
    return torch.baddbmm(rest, shift + ninth, ninth)


def _nearest_orthogonal(rotations: Tensor) -> Tensor:
    """The nearest orthogonal matrices, for those that are nearly so: one step of Newton's iteration."""
    return torch.baddbmm(rotations, rotations, rotations.mT @ rotations, beta=1.5, alpha=-0.5)


def _identity_like(matrices: Tensor) -> Tensor:
    return torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)


def _skew(matrices: Tensor) -> Tensor:
    """The skew part (M − Mᵀ) / 2."""
    return (matrices - matrices.mT) * 0.5
