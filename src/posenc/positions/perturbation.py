"""Positions drawn at random in training, so that a model meets more of them than its texts and pictures have."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from posenc.arguments import check_several
from posenc.positions.checking import NO_POSITION, check_coordinates, wide
from posenc.positions.grids import centred
from posenc.positions.validation import Sizes, check_fits, count_of, device_of, number_of, sizes_of, within


def randomised(
    tokens: int, max_length: int, *, batch: int | None = None, generator: torch.Generator | None = None
) -> Tensor:
    """Random positions in rising order, out of 0 … max_length − 1: in training, short texts then meet far positions.

    Randomised positional encodings (Ruoss et al., arXiv 2305.16843); any encoding that takes positions can be trained
    so. Draw anew at each step. A row costs max_length random numbers: 0.5 ms at 100,000 on one core.

    Args:
        tokens: positions in a row.
        max_length: the longest text that is to be met later, at least ``tokens``.
        batch: rows, each drawn for itself; default one draw ``(tokens,)`` for all, as the authors do.
        generator: decides the draw, and on which device; default PyTorch's own on the CPU.

    Returns:
        ``(tokens,)`` or ``(batch, tokens)``.

    >>> randomised(3, 3)
    tensor([0, 1, 2])
    """
    max_length = count_of("max_length", max_length)
    tokens = within("tokens", tokens, 1, max_length, "max_length")
    several = 1 if batch is None else count_of("batch", batch)
    check_fits("batch and max_length", several, max_length)
    device = device_of(generator)
    samples = [torch.randperm(max_length, generator=generator, device=device)[:tokens] for _ in range(several)]
    rows = torch.stack(samples).sort(-1).values
    return rows[0] if batch is None else rows


def perturbed(
    coordinates: Tensor,
    sizes: Sizes,
    *,
    intensity: float = 1.0,
    offset: float = 0.0,
    still: int = 0,
    still_axes: Sequence[int] | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Patch centres jittered within their patches, in a picture that is shifted: ComRoPE's training (arXiv 2506.03737).

    `centred`, of coordinates + clamp(½ · intensity · normal, −½, ½), each token and axis drawn for itself; then
    + offset · normal, drawn once a row and axis, for all tokens. Draw anew at each step; in use, call `centred`.

    Args:
        coordinates: ``(*batch, tokens, axes)``, as from `grid`, in patches. A class token at the centre: at
            (size − 1) / 2, by ``with_prefix(…, at="centre")``. Tokens without a place stay without.
        sizes: tokens along each axis; see `centred`.
        intensity: of the trembling; the authors' tables have 0 and 1.
        offset: standard deviation of the common offset, in pictures.
        still: tokens at the front of each row that move with the picture and do not tremble: the class token.
        still_axes: axes along which nothing trembles; default the first of three, that of frames.
        generator: decides the draws, and on which device; offsets are drawn first. Default PyTorch's own on the CPU.

    >>> from posenc.positions import grid
    >>> (perturbed(grid(4, 4), 4) - centred(grid(4, 4), 4)).abs().max() <= 0.5 / 4
    tensor(True)
    """
    check_coordinates(coordinates)
    tokens, axes = coordinates.shape[-2:]
    sizes = sizes_of("sizes", sizes, axes)
    intensity, offset = number_of("intensity", intensity, least=0), number_of("offset", offset, least=0)
    still = within("still", still, 0, tokens, "tokens")
    still_axes = _axes(still_axes, axes)
    rows, device = coordinates.shape[:-2], device_of(generator)
    # Two draws in this order, whole, whatever options are 0: one seed then gives one picture the same offset always.
    moved = torch.randn(*rows, 1, axes, generator=generator, device=device)
    noise = torch.randn(*rows, tokens - still, axes, generator=generator, device=device)
    noise = torch.cat([noise.new_zeros(*rows, still, axes), noise], -2)
    values = coordinates if coordinates.is_floating_point() else coordinates.float()
    trembles = values.new_tensor([axis not in still_axes for axis in range(axes)])
    # Clamped to half a patch either way, so that no token passes its neighbour.
    shaken = values + (0.5 * intensity * noise).clamp(-0.5, 0.5).to(values) * trembles
    return _placed(coordinates, centred(shaken, sizes) + (offset * moved).to(values))


def augmented(
    coordinates: Tensor,
    *,
    shift: float | None = None,
    jitter: float | None = None,
    rescale: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Coordinates shifted, scaled axis by axis, and scaled overall: DINOv3's training (arXiv 2508.10104).

    (c + shift) · jitter · rescale, in this order of draws: shift uniform in ± its bound, an axis each; jitter
    log-uniform between 1 / bound and bound, an axis each; rescale the same, one for all axes. One draw for the whole
    batch. Call it at each step; not in use. The released models have ``rescale=2`` alone.

    Args:
        coordinates: ``(*batch, tokens, axes)``, as from `signed`. Tokens without a place stay without.
        shift: bound of the shift, at least 0; None: none, and nothing is drawn.
        jitter: bound of the factor an axis, at least 1; None: none.
        rescale: bound of the common factor, at least 1; None: none.
        generator: decides the draws, and on which device; default PyTorch's own on the CPU.

    >>> from posenc.positions import grid, signed
    >>> augmented(signed(grid(4, 4), 4), rescale=2.0).abs().max() <= 0.75 * 2
    tensor(True)
    """
    check_coordinates(coordinates)
    axes = coordinates.shape[-1]
    changed = coordinates if coordinates.is_floating_point() else coordinates.float()
    if shift is not None:
        shift = number_of("shift", shift, least=0)
        changed = changed + _uniform(axes, shift, generator).to(changed)
    for name, bound, draws in (("jitter", jitter, axes), ("rescale", rescale, 1)):
        if bound is None:
            continue
        furthest = math.log(number_of(name, bound, least=1))
        changed = changed * _uniform(draws, furthest, generator).exp().to(changed)
    return _placed(coordinates, changed)


def _uniform(draws: int, bound: float, generator: torch.Generator | None) -> Tensor:
    device = device_of(generator)
    return torch.empty(draws, device=device).uniform_(-bound, bound, generator=generator)


def _axes(still_axes: Sequence[int] | None, axes: int) -> tuple[int, ...]:
    """The axes along which nothing trembles, checked."""
    if still_axes is None:
        return (0,) if axes == 3 else ()
    return tuple(
        within("still_axes", axis, 0, axes - 1, "axes - 1") for axis in check_several("still_axes", still_axes)
    )


def _placed(original: Tensor, changed: Tensor) -> Tensor:
    """The changed coordinates; tokens without a place as they were."""
    return torch.where(wide(original)[..., :1] == NO_POSITION, original.to(changed.dtype), changed)
