"""ALiBi against Press's code, BLOOM, MPT and x-transformers."""

from __future__ import annotations

import pytest
import torch

from posenc import ALiBi, attention
from posenc.bias import alibi_slopes
from posenc.positions import from_mask
from tests.golden import load
from tests.samples import BACKENDS, FLOATS, gap, refusals, weights

DTYPES = pytest.mark.parametrize(("dtype", "tolerance"), FLOATS.items(), ids=str)
EACH_BACKEND = pytest.mark.parametrize("backend", BACKENDS)


class TestSlopes:
    def test_press_for_1_to_128_heads(self):
        table = load("alibi_slopes_1_to_128")["slopes"]
        for heads in range(1, 129):
            assert gap(torch.tensor(alibi_slopes(heads), dtype=torch.float64), table[heads, :heads]) < 1e-15

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


class TestGolden:
    def test_press_adds_the_same_row_everywhere_which_differs_by_a_constant_a_row(self):
        golden = load("alibi_causal_h8_l19")
        positions = torch.arange(19).double()
        actual = ALiBi(8)(positions, positions)
        difference = (golden["bias"][0] - actual).masked_fill(~golden["mask_allowed"], torch.nan)
        spread = difference.nan_to_num(-torch.inf).amax(-1) - difference.nan_to_num(torch.inf).amin(-1)
        assert spread.abs().max() < 1e-12

    @DTYPES
    @EACH_BACKEND
    def test_bloom_left_padding(self, dtype, tolerance, backend):
        golden = load("alibi_bloom_leftpad_h4_l13", dtype)
        real = golden["attention_mask"].bool()
        options = {"q_pos": from_mask(real), "mask": real[:, None], "scale": float(golden["scale"]), "backend": backend}
        out = attention(golden["q"], golden["k"], golden["v"], [ALiBi(4)], **options)
        attn = weights(golden["q"], golden["k"], [ALiBi(4)], **options)
        for row, start in enumerate(real.int().argmax(-1).tolist()):
            assert gap(out[row, :, start:], golden["out"][row, :, start:]) < tolerance
            assert gap(attn[row, :, start:], golden["attn"][row, :, start:]) < tolerance


@pytest.mark.parametrize(("kind", "low"), [(torch.int8, -100), (torch.uint8, 0)], ids=str)
def test_bytes_count(kind, low):
    positions = torch.tensor([low, 5, 100])
    assert torch.equal(ALiBi(2)(positions.to(kind), positions.to(kind)), ALiBi(2)(positions, positions))


test_what_would_be_ignored_is_refused = refusals(
    {
        "max_exponent": [lambda: ALiBi(2, slopes=[0.5, 0.25], max_exponent=4.0)],
    }
)
