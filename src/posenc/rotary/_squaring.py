"""The exponential of skew matrices by scaling, a polynomial and squarings; and its derivative, by products alone.

    R = X_s,   X_(k+1) = X_k²,   X_0 = p(A / 2^s)                     p the exponential's series up to degree 18
    dR = R·W_s,   W_(k+1) = X_kᵀ·W_k·X_k + W_k                        W_k skew: the derivative along the rotations

The backward pass runs the second line from its end: it never leaves the skew matrices, divides by nothing, and so is
as right at zero and at repeated eigenvalues as anywhere else. Squaring doubles what an X_k lacks to be orthogonal, so
every few steps X ← X(3 − XᵀX)/2 takes that away; errors then stay near those of rounding A itself.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

# Bader, Blanes and Casas, Computing the Matrix Exponential with an Optimized Taylor Polynomial Approximation,
# Mathematics 7 (2019) 1174, section 3: degree 18 in five products. Columns: the weights of 1, X, X², X³, X⁶.
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
_MOST_STEPS = 1000  # past any finite float64
_POLISHED = 4  # squarings between two repairs of orthogonality


class Chain(NamedTuple):
    """What lies between skew matrices and their exponentials."""

    scaled: Tensor  # A / 2^s
    parts: tuple[Tensor, ...]  # of the polynomial
    squares: list[Tensor]  # X_0 … X_s


def exponential(generators: Tensor) -> Tensor:
    """exp of skew matrices ``(n, b, b)``; exactly the identity for a matrix of zeros."""
    norms = _norms(generators)
    rotations = _polished(_chain(generators, norms).squares[-1])
    identity = torch.eye(generators.shape[-1], dtype=generators.dtype, device=generators.device)
    return torch.where((norms == 0)[:, None, None], identity, rotations)


def gradient(generators: Tensor, grad: Tensor) -> Tensor:
    """The gradient of ``generators``, skew, from their exponentials' gradient; the chain is recomputed, not stored."""
    scaled, parts, squares = _chain(generators, _norms(generators))
    *earlier, last = squares
    along = skew(torch.bmm(last.mT, grad))
    for square in reversed(earlier):
        along = torch.baddbmm(along, torch.bmm(square, along), square.mT)
    return skew(_polynomial_backward(scaled, parts, torch.bmm(squares[0], along))) * 0.5 ** (len(squares) - 1)


def skew(matrices: Tensor) -> Tensor:
    """The skew part (M − Mᵀ) / 2."""
    return (matrices - matrices.mT) * 0.5


def _norms(generators: Tensor) -> Tensor:
    """A bound on each matrix's largest angle ``(n,)``: its 1-norm, or what all its entries together allow."""
    one_norm = generators.abs().sum(-1).amax(-1)
    all_entries = torch.linalg.vector_norm(generators, dim=(-2, -1)) / math.sqrt(2)  # angles come in pairs
    return torch.minimum(one_norm, all_entries)


def _chain(generators: Tensor, norms: Tensor) -> Chain:
    """Polynomial and squarings, as many for all as the largest of them needs."""
    largest = float(norms.nan_to_num(0.0, 0.0, 0.0).amax())
    reach = _REACH[generators.dtype]
    steps = min(_MOST_STEPS, math.ceil(math.log2(largest / reach))) if largest > reach else 0
    scaled = generators * 0.5**steps
    first, parts = _polynomial(scaled)
    squares = [first]
    for step in range(1, steps + 1):
        if step % _POLISHED == 0:
            squares[-1] = _polished(squares[-1])
        squares.append(torch.bmm(squares[-1], squares[-1]))
    return Chain(scaled, parts, squares)


def _polished(rotations: Tensor) -> Tensor:
    """The nearest orthogonal matrices, for those that are nearly so: one step of Newton's iteration."""
    return torch.baddbmm(rotations, rotations, torch.bmm(rotations.mT, rotations), beta=1.5, alpha=-0.5)


def _polynomial(x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The series of exp up to degree 18, and the matrices that its derivative needs."""
    square = torch.bmm(x, x)
    cube = torch.bmm(square, x)
    powers = torch.stack([x, square, cube, torch.bmm(cube, cube)])
    weights = torch.tensor(_WEIGHTS, dtype=x.dtype, device=x.device)
    sums = (weights[:, 1:] @ powers.flatten(1)).view(5, *x.shape)
    sums.diagonal(dim1=-2, dim2=-1).add_(weights[:, 0].view(5, 1, 1))
    left, rest, shift, middle, right = sums.unbind()
    ninth = torch.baddbmm(middle, left, right)
    factor = shift + ninth
    return torch.baddbmm(rest, factor, ninth), (square, cube, left, right, ninth, factor)


def _polynomial_backward(x: Tensor, parts: tuple[Tensor, ...], grad: Tensor) -> Tensor:
    """The gradient of ``x`` from the polynomial's gradient: its products in reverse order."""
    square, cube, left, right, ninth, factor = parts
    of_factor = torch.bmm(grad, ninth.mT)
    of_ninth = torch.baddbmm(of_factor, factor.mT, grad)
    of_left, of_right = torch.bmm(of_ninth, right.mT), torch.bmm(left.mT, of_ninth)
    of_sums = torch.stack([of_left, grad, of_factor, of_ninth, of_right])
    weights = torch.tensor(_WEIGHTS, dtype=x.dtype, device=x.device)
    of_x, of_square, of_cube, of_sixth = (weights[:, 1:].T @ of_sums.flatten(1)).view(4, *x.shape).unbind()
    of_cube = of_cube.baddbmm(of_sixth, cube.mT).baddbmm_(cube.mT, of_sixth)
    of_square = of_square.baddbmm(of_cube, x.mT)
    return of_x.baddbmm(square.mT, of_cube).baddbmm_(of_square, x.mT).baddbmm_(x.mT, of_square)
