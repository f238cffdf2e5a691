"""ALiBi against Press's code, BLOOM, MPT and x-transformers."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posenc import ALiBi, attention
from posenc.bias import alibi_slopes
from posenc.positions import from_mask
from tests.golden import load
from tests.samples import BACKENDS, FLOATS, bounded, expect_golden, gap, qkv, refusals, weights

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
    @DTYPES
    @EACH_BACKEND
    @pytest.mark.parametrize("name", ["alibi_causal_h8_l19", "alibi_decode_h12_q1_k23"])
    def test_press(self, name, dtype, tolerance, backend):
        golden = load(name, dtype)
        alibi = ALiBi(golden["q"].shape[1])
        assert gap(torch.tensor(alibi.slopes, dtype=dtype), golden["slopes"]) < tolerance
        expect_golden(golden, [alibi], tolerance, backend=backend)

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

    @DTYPES
    @EACH_BACKEND
    def test_mpt_attends_to_both_sides(self, dtype, tolerance, backend):
        golden = load("alibi_mpt_bidirectional_h5_l14", dtype)
        positions = torch.arange(14).to(dtype)
        assert gap(ALiBi(5)(positions, positions)[None], golden["bias"]) < tolerance
        expect_golden(golden, [ALiBi(5)], tolerance, causal=False, backend=backend)

    @DTYPES
    @EACH_BACKEND
    def test_positions_of_their_own_and_a_head_without_bias(self, dtype, tolerance, backend):
        golden = load("alibi_custompos_h3of4_l7", dtype)
        alibi = ALiBi(4, slopes=[*alibi_slopes(3), 0.0])
        positions = golden["positions"]
        assert gap(alibi(positions, positions), golden["bias"]) < tolerance
        for q_pos in (positions, positions.long()):
            expect_golden(golden, [alibi], tolerance, q_pos=q_pos, backend=backend)


class TestProperties:
    @bounded
    @given(st.integers(1, 9), st.lists(st.integers(0, 10**9), min_size=2, max_size=6, unique=True))
    def test_falls_with_the_distance(self, heads, distances):
        near_to_far = torch.tensor(sorted(distances))
        for side in (-1, 1):
            bias = ALiBi(heads).of_distance(side * near_to_far)
            assert (bias.diff(dim=-1) <= 0).all()
            assert (bias <= 0).all()
        assert (bias[:, 0] == 0).all() == (near_to_far[0] == 0)

    @bounded
    @given(st.integers(-(10**9), 10**9))
    def test_a_common_shift_changes_nothing(self, shift):
        q_pos, k_pos = torch.tensor([3, 9]), torch.tensor([[0, 4, 9], [5, 1, 20]])
        assert torch.equal(ALiBi(3)(q_pos, k_pos), ALiBi(3)(q_pos + shift, k_pos + shift))

    @bounded
    @given(st.integers(1, 6), st.integers(1, 12))
    def test_causal_rows_equal_the_key_term_alone(self, heads, length):
        q, k, _ = qkv(1, heads, length, dtype=torch.float64)
        alibi = ALiBi(heads)
        key_term = torch.tensor(alibi.slopes, dtype=torch.float64).view(-1, 1, 1) * torch.arange(length)
        scores = q @ k.mT * 8**-0.5 + key_term
        expected = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf).softmax(-1)
        assert gap(weights(q, k, [alibi]), expected) < 1e-12


def test_shapes_and_precision_follow_the_positions():
    alibi, row, rows = ALiBi(3), torch.arange(4), torch.arange(10).view(2, 5)
    assert alibi(row, row).shape == (3, 4, 4)
    assert alibi(rows, row).shape == alibi(rows, row.expand(2, 4)).shape == (2, 3, 5, 4)
    assert alibi(row, rows).shape == (2, 3, 4, 5)
    assert alibi(row, row).dtype == alibi(row.float(), row).dtype == torch.float32
    assert alibi(row.double(), row).dtype == torch.float64


def test_no_cast_rounds_the_slopes():
    positions = torch.arange(9)
    assert torch.equal(ALiBi(12)(positions, positions), ALiBi(12).bfloat16()(positions, positions))
    assert not ALiBi(12).state_dict()


def test_fractional_positions_have_gradients():
    positions = torch.tensor([0.5, 2.0, 7.25], dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda p: ALiBi(2)(p, torch.tensor([1, 3])), positions)


@pytest.mark.parametrize("kind", [torch.int16, torch.int32])
def test_short_integers_count(kind):
    positions = torch.tensor([0, 5, 100])
    assert torch.equal(ALiBi(2)(positions.to(kind), positions.to(kind)), ALiBi(2)(positions, positions))


@pytest.mark.parametrize(("kind", "low"), [(torch.int8, -100), (torch.uint8, 0)], ids=str)
def test_bytes_count(kind, low):
    positions = torch.tensor([low, 5, 100])
    assert torch.equal(ALiBi(2)(positions.to(kind), positions.to(kind)), ALiBi(2)(positions, positions))


test_what_would_be_ignored_is_refused = refusals(
    {
        "max_exponent": [lambda: ALiBi(2, slopes=[0.5, 0.25], max_exponent=4.0)],
    }
)


def test_scaled_as_falcon_has_it():
    """The bias is inside the scale there: (q·k + bias) / √head_dim."""
    q, k, v = qkv(dtype=torch.float64)
    at = torch.arange(6).double()
    scores = (q @ k.mT + ALiBi(4)(at, at)) * 8**-0.5
    hidden = torch.ones(6, 6, dtype=torch.bool).triu(1)
    expected = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
    assert gap(attention(q, k, v, [ALiBi(4, bias_scale=8**-0.5)]), expected) < 1e-12
    with pytest.raises(ValueError, match="bias_scale"):
        ALiBi(4, bias_scale=float("nan"))
