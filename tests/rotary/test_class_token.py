"""A class token without a place stands at the origin of a rotation; in the middle of the picture it moves with it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from posenc import AxialRoPE, attention
from posenc.encoding import RotaryEncoding
from posenc.positions import grid, with_prefix
from posenc.rotary import MixedRoPE
from tests.samples import gap

ROPES = {"axial": lambda: AxialRoPE(16), "mixed": lambda: MixedRoPE(16, num_heads=2)}


@pytest.mark.parametrize("rope", ROPES.values(), ids=list(ROPES))
def test_a_shift_of_all_patches_changes_what_the_class_token_sees_unless_it_stands_in_the_middle(rope: Any) -> None:
    torch.manual_seed(0)
    encoding: RotaryEncoding = rope()
    q, k, v = torch.randn(3, 1, 2, 1 + 4 * 5, 16).double()

    def outputs(shift: int, **where: Any) -> tuple[Tensor, Tensor]:
        at = with_prefix(grid(4, 5) + shift, **where)
        out = attention(q, k, v, [encoding], q_pos=at, k_pos=at, causal=False)
        without = attention(q[:, :, 1:], k[:, :, 1:], v[:, :, 1:], [encoding], q_pos=at[1:], k_pos=at[1:], causal=False)
        return out[:, :, 0], without

    token, patches = outputs(0)
    moved, moved_patches = outputs(20)
    assert gap(patches, moved_patches) < 1e-5
    assert gap(token, moved) > 1e-2
    assert gap(token, outputs(0, at="origin")[0]) < 1e-6  # no place is the place 0
    assert gap(outputs(0, at="centre")[0], outputs(20, at="centre")[0]) < 1e-5
