"""The basis in which a skew matrix only rotates pairs, and the way back for gradients.

    A = Q · diag(w_k J) · Qᵀ,  J = [[0, −1], [1, 0]]   ⇒   exp(t A) = Q · (pair k rotated by t·w_k) · Qᵀ

The derivative of exp(t A) along Q E Qᵀ is Q D Qᵀ with the pairs seen as complex numbers, D = Φ∘E (Daleckii and Krein):

    Φ(w_j, w_k) = (e^{i t w_j} − e^{i t w_k}) / (i (w_j − w_k)) = t e^{i t (w_j + w_k)/2} sinc(t (w_j − w_k)/2)

The first form lets all tokens be summed by one product of matrices, before the division; the second form is right where
w_j and w_k nearly meet, and its sinc becomes two terms there, each of them a sum over tokens as well.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from posenc.encoding import float64_if_supported

_ZERO = 1e-8  # below this share of the largest rate, eigenvectors of ±w are no longer told apart
_DISTINCT = 1e-3  # above this share they are so well separated that they are orthogonal to rounding
_NEAR = {torch.float32: 0.16, torch.float64: 3e-3}  # t (w_j − w_k) where rounding of the first form meets sinc's rest


@torch.library.custom_op("posenc::skew_basis", mutates_args=())
def skew_basis(generators: Tensor) -> tuple[Tensor, Tensor]:
    """Q ``(..., b, b)``, whose columns 2k and 2k + 1 are pair k, and w ``(..., b/2)``, of skew matrices of even size.

    In float64 where there is one; not differentiable. Q is orthogonal to rounding whatever meets or vanishes.
    """
    device = generators.device if generators.device.type in ("cpu", "cuda") else torch.device("cpu")
    wide = generators.to(device, torch.float64)
    pairs = wide.shape[-1] // 2
    broken = 0.0 * wide.sum((-2, -1)).unsqueeze(-1)  # NaN where the generator is not finite, which eigh refuses
    wide = wide.nan_to_num(0.0, 0.0, 0.0)
    values, vectors = torch.linalg.eigh(torch.complex(torch.zeros_like(wide), -wide))
    rates, vectors = values[..., pairs:], vectors[..., pairs:]  # i·w above zero; the others are their conjugates
    if bool((rates > _DISTINCT * rates[..., -1:]).all()):
        basis = torch.stack([vectors.imag, vectors.real], -1).flatten(-2) * math.sqrt(2)
    else:
        basis = _planes(rates, vectors)
    first, second = basis[..., ::2], basis[..., 1::2]
    rates = ((wide @ first) * second).sum(-2) + broken
    target = float64_if_supported(generators.device)
    return basis.contiguous().to(generators.device, target), rates.to(generators.device, target)


def _planes(rates: Tensor, vectors: Tensor) -> Tensor:
    """A real basis, orthogonal even where several rates vanish, which leaves their eigenvectors to chance.

    Planes of other rates get a number each, what is left gets 0; the eigenvectors of that sum are the basis.
    """
    number = torch.arange(1, rates.shape[-1] + 1, dtype=rates.dtype, device=rates.device)
    number = torch.where(rates > _ZERO * rates[..., -1:], number, 0.0).unsqueeze(-2)
    basis: Tensor = torch.linalg.eigh(sum((part * number) @ part.mT for part in (vectors.real, vectors.imag)))[1]
    return basis


@skew_basis.register_fake
def _(generators: Tensor) -> tuple[Tensor, Tensor]:
    *batch, width, _ = generators.shape
    target = float64_if_supported(generators.device)
    return generators.new_empty(*batch, width, width, dtype=target), generators.new_empty(
        *batch, width // 2, dtype=target
    )


class Sums(NamedTuple):
    """Sums over tokens of outer products, ``(..., b, b)``; see `generator_gradient`."""

    difference: Tensor
    middle: Tensor
    third: Tensor


def generator_gradient(sums: Sums, basis: Tensor, rates: Tensor, longest: Tensor, dtype: torch.dtype) -> Tensor:
    """The gradient of the generators, skew, from sums over tokens in the basis.

    Args:
        sums: of g the gradient and x the input of a token at time t, in the basis, as outer products g ⊗ x:
            ``difference`` R(−t)g ⊗ x − g ⊗ R(t)x, ``middle`` t R(−t/2)g ⊗ R(t/2)x, ``third`` the same with
            t (t / longest)².
        basis, rates: Q and w.
        longest: the largest |t|, ``(..., 1, 1)``.
        dtype: the precision in which tokens were summed.
    """
    near, w = _NEAR[dtype], rates.to(sums.difference.dtype)
    row, column = w.unsqueeze(-1), w.unsqueeze(-2)
    forms = [_complex_parts(part) for part in sums]
    entries = []
    for which, gap in enumerate((row - column, row + column)):  # of what multiplies x_k, and of what its conjugate
        (d_real, d_imag), (m_real, m_imag), (t_real, t_imag) = (form[which] for form in forms)
        close = (gap * longest).abs() < near
        inverse = 1 / torch.where(close, 1.0, gap)
        bend = (gap * longest).square() / 24
        entries.append(torch.where(close, m_real - bend * t_real, -d_imag * inverse))
        entries.append(torch.where(close, m_imag - bend * t_imag, d_real * inverse))
    inside = _real_matrix(*entries)
    basis_ = basis.to(inside.dtype)
    outside = basis_ @ inside @ basis_.mT
    return ((outside - outside.mT) * 0.5).contiguous()


def _complex_parts(matrix: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """a and b, real and imaginary, of x_k → a_jk x_k + b_jk conj(x_k), for a real matrix over pairs."""
    p, q = matrix[..., ::2, ::2], matrix[..., ::2, 1::2]
    r, s = matrix[..., 1::2, ::2], matrix[..., 1::2, 1::2]
    return ((p + s) / 2, (r - q) / 2), ((p - s) / 2, (r + q) / 2)


def _real_matrix(a_real: Tensor, a_imag: Tensor, b_real: Tensor, b_imag: Tensor) -> Tensor:
    """The inverse of `_complex_parts`."""
    upper = torch.stack([a_real + b_real, b_imag - a_imag], -1).flatten(-2)
    lower = torch.stack([a_imag + b_imag, a_real - b_real], -1).flatten(-2)
    return torch.stack([upper, lower], -2).flatten(-3, -2)


def dense_of(basis: Tensor) -> Tensor:
    """Blocks ``(rows, blocks, b, b)`` on the diagonal of ``(rows, blocks · b, blocks · b)``.

    One dense product a head is faster than many small ones: it reads its argument in place.
    """
    rows, blocks, width, _ = basis.shape
    eye = torch.eye(blocks, dtype=basis.dtype, device=basis.device)
    placed = basis.unsqueeze(3) * eye[None, :, None, :, None]
    return placed.reshape(rows, blocks * width, blocks * width)


def blocks_of(dense: Tensor, blocks: int) -> Tensor:
    """The inverse of `dense_of`."""
    width = dense.shape[-1] // blocks
    return dense.reshape(-1, blocks, width, blocks, width).diagonal(dim1=1, dim2=3).movedim(-1, 1)
