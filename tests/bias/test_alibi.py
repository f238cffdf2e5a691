"""ALiBi: other slopes, positions of a byte, and what would be ignored."""

from __future__ import annotations

import pytest
import torch

from posenc import ALiBi
from posenc.bias import alibi_slopes
from tests.samples import refusals


class TestSlopes:
    def test_other_kinds(self):
        assert alibi_slopes(3, "geometric") == [2 ** (-8 * h / 3) for h in (1, 2, 3)]
        assert alibi_slopes(8, "kerple") == [max(s, 0.01) for s in alibi_slopes(8)]
        assert alibi_slopes(4, max_exponent=4.0) == [0.5, 0.25, 0.125, 0.0625]
        assert ALiBi(4, max_exponent=4.0).slopes == (0.5, 0.25, 0.125, 0.0625)

    @pytest.mark.parametrize(
        ("call", "words"),
        [
            (lambda: alibi_slopes(0), "num_heads"),
            (lambda: alibi_slopes(2, "steep"), "slopes"),
            (lambda: alibi_slopes(2, max_exponent=0.0), "max_exponent must be positive"),
            (lambda: ALiBi(2, slopes=[0.5]), "slopes"),
            (lambda: ALiBi(2, slopes=[0.5, float("nan")]), "slopes"),
            (lambda: ALiBi(0), "num_heads"),
            (lambda: ALiBi(2)(torch.zeros(3).half(), torch.arange(3)), "q_pos must be integers"),
            (lambda: ALiBi(2)(torch.arange(3), torch.ones(3).bool()), "k_pos must be integers"),
        ],
    )
    def test_refusals_name_the_argument(self, call, words):
        with pytest.raises(ValueError) as error:
            call()
        assert words in str(error.value)


@pytest.mark.parametrize(("kind", "low"), [(torch.int8, -100), (torch.uint8, 0)], ids=str)
def test_bytes_count(kind, low):
    positions = torch.tensor([low, 5, 100])
    assert torch.equal(ALiBi(2)(positions.to(kind), positions.to(kind)), ALiBi(2)(positions, positions))


test_what_would_be_ignored_is_refused = refusals(
    {
        "max_exponent": [lambda: ALiBi(2, slopes=[0.5, 0.25], max_exponent=4.0)],
    }
)
