"""FoPE: the authors' tables and rotated tensors, in their form and with pairs that rest."""

from __future__ import annotations

import pytest
import torch

from posenc import RoPE, attention
from posenc.rotary import FoPE
from tests.golden import config, load, names
from tests.samples import FLOATS, gap, qkv, refusals

FILES = names("fope_*")


def official(name, dtype, rest):
    inputs, arrays = config(name), load(name, dtype)
    width = inputs["head_dim"]
    fope = FoPE(
        width, num_heads=inputs["heads"], original_length=inputs["max_sequence_length"], base=inputs["rope_theta"],
        spectrum_dim=inputs["fourier_dim"] or None, slow="drop" if inputs["fourier_ignore_zero"] else "zero",
        series=min(arrays["inv_freq_kept"].shape[0], width // 4) if inputs["fourier_ignore_zero"] else None,
        per_head=inputs["fourier_separate_head"], separate=inputs["fourier_separate_basis"],
        normalized=inputs["fourier_norm"], rest=rest,
    ).to(dtype)  # fmt: skip
    assert fope.cos_coef.shape[1] == len(arrays["inv_freq_kept"])
    with torch.no_grad():
        for actual, reference in ((fope.cos_coef, "cos_coef"), (fope.sin_coef, "sin_coef")):
            if actual is not None:
                actual.copy_(arrays[reference])
    return fope, arrays, inputs["past"]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("rest", ["doubled", "pass"])
@pytest.mark.parametrize("name", FILES)
def test_the_authors_numbers(name, rest, dtype):
    fope, arrays, past = official(name, dtype, rest)
    ending = "" if rest == "doubled" else "_zero_pad"
    keys = torch.arange(arrays["k"].shape[2])
    cos, sin = fope.table(keys, like=arrays["k"])
    assert gap(cos.expand_as(arrays["cos_table"]), arrays["cos_table"]) < FLOATS[dtype]
    expected = arrays["sin_table_official" if rest == "doubled" else "sin_table_zero_pad"]
    assert gap(sin.expand_as(expected), expected) < FLOATS[dtype]
    for got, expected in zip(fope(arrays["q"], arrays["k"], keys[past:], keys), ("q_rot", "k_rot"), strict=True):
        assert gap(got, arrays[expected + ending]) < 10 * FLOATS[dtype]


def test_without_noise_the_pairs_rotate_as_under_rope():
    q, k, _ = qkv(2, 4, 9, head_dim=16, num_kv_heads=2)
    fope, positions = FoPE(16, num_heads=4, original_length=64, num_kv_heads=2, noise=0.0), torch.arange(9) * 5
    remaining = fope.series
    assert remaining == 3
    actual, expected = fope(q, k, positions, positions), RoPE(16)(q, k, positions, positions)
    turning = [*range(remaining), *range(8, 8 + remaining)]
    resting = [c for c in range(16) if c not in turning]
    for got, rotated, before in zip(actual, expected, (q, k), strict=True):
        assert gap(got[..., turning], rotated[..., turning]) < 1e-6
        assert torch.equal(got[..., resting], before[..., resting])


def test_coefficients_learn_only_where_asked():
    for learned in (False, True):
        fope = FoPE(16, num_heads=2, original_length=64, learned=learned)
        assert {p.requires_grad for p in fope.parameters()} == {learned}
        assert set(fope.state_dict()) == {"cos_coef", "sin_coef"}
        q, k, v = qkv(1, 2, 5, head_dim=16)
        out = attention(q.requires_grad_(), k, v, [fope])
        out.sum().backward()
        assert (fope.cos_coef.grad is not None) == learned


test_refusals = refusals(
    {
        "head_dim": [lambda: FoPE(7, num_heads=2, original_length=64)],
        "num_kv_heads": [
            lambda: FoPE(8, num_heads=3, original_length=64, num_kv_heads=2),
            lambda: FoPE(8, num_heads=4, original_length=64).rotate(
                torch.zeros(1, 3, 3, 8), (torch.zeros(4, 3, 4),) * 2
            ),
        ],
        "original_length": [lambda: FoPE(8, num_heads=2, original_length=6)],
        "series": [lambda: FoPE(8, num_heads=2, original_length=64, series=5)],
        "num_frequencies": [lambda: FoPE(8, num_heads=2, original_length=64, num_frequencies=5)],
    }
)
