"""Rotation in the argument order of PyTorch's coming function: against RoPE, and written out."""

from __future__ import annotations

import pytest
import torch

from posenc import RoPE
from posenc.functional import rotary_embedding


@pytest.mark.parametrize("interleaved", [False, True])
def test_equals_rope_and_the_definition(interleaved: bool) -> None:
    rope = RoPE(16, layout="interleaved" if interleaved else "half", rotary_dim=12)
    x, positions = torch.randn(2, 3, 5, 16), torch.tensor([[4, 0, 9, 1, 2], [7, 7, 3, 0, 5]])
    cos, sin = rope.table(torch.arange(10))
    got = rotary_embedding(x, cos, sin, positions, interleaved=interleaved)
    torch.testing.assert_close(got, rope.rotate(x, rope.table(positions)), rtol=0, atol=0)
    torch.testing.assert_close(
        rotary_embedding(x, cos[:5], sin[:5], interleaved=interleaved)[0, 0, 4, 12:], x[0, 0, 4, 12:]
    )
    a, b = (0, 1) if interleaved else (0, 6)
    angle = torch.tensor(9.0)  # the first frequency is 1
    right = x[0, 1, 2, a] * angle.cos() - x[0, 1, 2, b] * angle.sin()
    torch.testing.assert_close(got[0, 1, 2, a], right)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x": torch.zeros(3, 5, 16)}, "x must be"),
        ({"sin": torch.zeros(10, 4)}, "one shape"),
        ({"cos": torch.zeros(10, 9), "sin": torch.zeros(10, 9)}, "at most 8 pairs"),
        ({"position_ids": torch.zeros(5, dtype=torch.int64)}, "position_ids must be integers"),
        ({"position_ids": torch.zeros(2, 5)}, "position_ids must be integers"),
        ({"interleaved": "no"}, "interleaved must be"),
    ],
)
def test_what_does_not_fit(change: dict[str, object], words: str) -> None:
    given = {"x": torch.zeros(2, 3, 5, 16), "cos": torch.zeros(10, 8), "sin": torch.zeros(10, 8), **change}
    with pytest.raises(ValueError, match=words):
        rotary_embedding(**given)  # type: ignore[arg-type]
