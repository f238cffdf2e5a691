"""ALiBi: other slopes, and positions of a byte."""

from __future__ import annotations

import pytest
import torch

from posenc import ALiBi
from posenc.bias import alibi_slopes


class TestSlopes:
    def test_other_kinds(self):
        assert alibi_slopes(3, "geometric") == [2 ** (-8 * h / 3) for h in (1, 2, 3)]
        assert alibi_slopes(8, "kerple") == [max(s, 0.01) for s in alibi_slopes(8)]
        assert alibi_slopes(4, max_exponent=4.0) == [0.5, 0.25, 0.125, 0.0625]
        assert ALiBi(4, max_exponent=4.0).slopes == (0.5, 0.25, 0.125, 0.0625)


@pytest.mark.parametrize(("kind", "low"), [(torch.int8, -100), (torch.uint8, 0)], ids=str)
def test_bytes_count(kind, low):
    positions = torch.tensor([low, 5, 100])
    assert torch.equal(ALiBi(2)(positions.to(kind), positions.to(kind)), ALiBi(2)(positions, positions))
