"""Resized tables: identity, axes apart, offsets, precision; layouts of checkpoints."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from posenc.embedding import LearnedGrid, resize_grid
from tests.samples import gap


def table(rows, dim=3, seed=0, dtype=torch.float64):
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
@pytest.mark.parametrize("size", [(7,), (4, 9), (6, 1)])
def test_the_same_size_is_the_identity(size, mode, align_corners):
    rows = table(2 + int(np.prod(size)))
    for antialias in (False, True):
        same = resize_grid(rows, size, size, prefix=2, mode=mode, align_corners=align_corners, antialias=antialias)
        assert torch.equal(same, rows)
    assert torch.equal(resize_grid(table(24), (2, 3, 4), (2, 3, 4), mode="bilinear"), table(24))


def test_equal_counts_of_rows_are_not_equal_sizes():
    """4 × 9 and 6 × 6 have 36 rows each: the table is resized all the same."""
    ramp = torch.arange(4.0)[:, None].expand(4, 9).reshape(36, 1)  # counts its rows of the picture
    new = resize_grid(ramp, (4, 9), (6, 6), mode="bilinear", align_corners=True).view(6, 6)
    assert gap(new, torch.linspace(0, 3, 6)[:, None].expand(6, 6)) < 1e-6


def test_axes_are_resized_apart():
    """A product of a function of each axis stays one, whatever the number of axes."""
    parts = [table(n, 1, seed) for seed, n in enumerate((3, 4, 5))]
    new = [resize_grid(part, (len(part),), (m,), mode="bilinear") for part, m in zip(parts, (5, 4, 2), strict=True)]
    a, b, c = (part.flatten() for part in parts)
    d, e, f = (part.flatten() for part in new)
    video = torch.einsum("i,j,k->ijk", a, b, c).reshape(-1, 1)
    expected = torch.einsum("i,j,k->ijk", d, e, f).reshape(-1, 1)
    assert gap(resize_grid(video, (3, 4, 5), (5, 4, 2), mode="bilinear"), expected) < 1e-12
    image = torch.outer(b, c).reshape(-1, 1)
    b, c = (resize_grid(part, (len(part),), (m,)).flatten() for part, m in zip(parts[1:], (9, 3), strict=True))
    assert gap(resize_grid(image, (4, 5), (9, 3)), torch.outer(b, c).reshape(-1, 1)) < 1e-12


@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
@pytest.mark.parametrize(("old", "new"), [((5,), (8,)), ((37, 37), (16, 73)), ((1, 4), (1, 7)), ((3, 2, 2), (5, 1, 4))])
def test_an_offset_moves_steps_and_not_sizes(old, new, mode):
    mode = "bilinear" if len(old) == 3 else mode
    rows = table(1 + int(np.prod(old)))
    moved = resize_grid(rows, old, new, prefix=1, mode=mode, offset=0.1)
    assert moved.shape == (1 + int(np.prod(new)), 3)
    assert torch.equal(moved[0], rows[0])
    assert gap(moved, resize_grid(rows, old, new, prefix=1, mode=mode)) > 1e-3


def test_float32_inside():
    rows = table(17, dtype=torch.bfloat16)
    new = resize_grid(rows, (4, 4), (6, 6), prefix=1)
    assert new.dtype == torch.bfloat16
    assert torch.equal(new, resize_grid(rows.float(), (4, 4), (6, 6), prefix=1).bfloat16())


@pytest.mark.parametrize(
    ("shape", "options", "size", "prefix"),
    [
        ((1, 197, 4), (None, None), (14, 14), 1),  # ViT, MAE
        ((1, 198, 4), (None, None), (14, 14), 2),  # DeiT, distilled
        ((196, 4), (None, None), (14, 14), 0),  # SimpleViT, and timm's tables without a class token
        ((1, 1370, 4), (None, None), (37, 37), 1),  # DINOv2, with registers or without
        ((1, 8, 12, 4), (None, None), (8, 12), 0),  # SAM's layout
        ((1, 2, 3, 5, 4), ((2, 3, 5), None), (2, 3, 5), 0),
        ((37, 4), ((4, 9), None), (4, 9), 1),
        ((37, 4), ((37,), None), (37,), 0),
        ((1, 41, 4), ((4, 9), 5), (4, 9), 5),
        ((1, 41, 4), (None, 5), (6, 6), 5),
        ((2, 4), (None, None), (1, 1), 1),
    ],
)
def test_layouts_of_checkpoints(shape, options, size, prefix):
    loaded = LearnedGrid.from_table(torch.zeros(shape), *options)
    assert (loaded.size, loaded.prefix) == (size, prefix)
    assert loaded.table.shape == (prefix + int(np.prod(size)), 4)
