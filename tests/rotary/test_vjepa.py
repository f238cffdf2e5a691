"""V-JEPA's RoPE: the fixed form is axial RoPE, and the released one is no rotation."""

from __future__ import annotations

import pytest
import torch

from posenc import AxialRoPE
from posenc.positions import grid
from posenc.rotary import VJEPARoPE
from tests.rotary.test_axes import matrices
from tests.samples import gap


@pytest.mark.parametrize("head_dim", [6, 8, 24, 64, 80])
def test_the_fixed_form_is_axial_rope_by_its_convention(head_dim):
    rope, axial = VJEPARoPE(head_dim), AxialRoPE(head_dim, axes=3, convention="v-jepa-2")
    x, positions = torch.randn(1, 2, 24, head_dim), grid(2, 3, 4)
    assert torch.equal(rope.rotate(x, rope.table(positions)), axial.rotate(x, axial.table(positions)))


def test_the_released_form_is_no_rotation():
    """It changes norms, and its scores depend on where tokens are."""
    torch.manual_seed(0)
    wrong = stretched = 0.0
    for _ in range(20):
        x, y = torch.randint(0, 16, (2, 3))
        for released in (False, True):
            rope = VJEPARoPE(64, released=released)
            of_x, of_y = (matrices(rope, p, heads=1)[0] for p in (x, y))
            error = gap(of_x.mT @ of_y, matrices(rope, y - x, heads=1)[0])
            stretch = gap(of_x.mT @ of_x, torch.eye(64, dtype=torch.float64))
            if released:
                wrong, stretched = max(wrong, error), max(stretched, stretch)
            else:
                assert max(error, stretch) < 1e-12
    assert wrong > 1.0
    assert stretched > 0.5


@pytest.mark.parametrize("head_dim", [4, 7, 2])
def test_refusals_name_the_argument(head_dim):
    with pytest.raises(ValueError, match="head_dim"):
        VJEPARoPE(head_dim)
