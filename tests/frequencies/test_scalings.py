"""Scalings of frequencies: what each promises, their spectra, bases for a length."""

from __future__ import annotations

import copy
import pickle

import mpmath
import pytest
import torch
from torch import nn

from posenc import DynamicNTK, Llama3, LongRoPE, PositionInterpolation, RoPE, YaRN, create_encoding
from posenc.catalogue import CATALOGUE
from posenc.frequencies import (
    DynamicLongRoPE,
    DynamicPositionInterpolation,
    DynamicYaRN,
    MultiScale,
    Proportional,
    Resonance,
    Spectrum,
    base_for,
)
from posenc.frequencies import yarn as host_yarn
from posenc.frequencies.host import geometric, turns
from posenc.frequencies.spectrum import host_float64
from tests.samples import gap, qkv

L = 64
PAIRS = 16
FACTORS = [1.0 + j / 4 for j in range(PAIRS)]
DYNAMIC = {
    "dynamic_pi": DynamicPositionInterpolation(original_length=L),
    "dynamic_ntk": DynamicNTK(original_length=L),
    "dynamic_ntk_hf": DynamicNTK(4, original_length=L),
    "dynamic_ntk_qwen": DynamicNTK(original_length=L, schedule="powers"),
    "dynamic_yarn": DynamicYaRN(original_length=L),
    "dynamic_yarn_rotations": DynamicYaRN(original_length=L, ramp="rotations"),
    "longrope": LongRoPE([1.0] * PAIRS, FACTORS, original_length=L, factor=4),
    "dynamic_longrope": DynamicLongRoPE(FACTORS, original_length=L, factor=4),
}
LENGTHS = [1, L - 1, L, L + 1, 2 * L, 4 * L, 100 * L]


def spectrum(length=None):
    return Spectrum(host_float64(geometric(2 * PAIRS, 10_000.0)), length)


@pytest.mark.parametrize("name", DYNAMIC)
class TestLengths:
    def test_rows_and_tokens_get_what_each_length_gets_alone(self, name):
        scaling = DYNAMIC[name]
        rows = scaling(spectrum(torch.tensor(LENGTHS, dtype=torch.float64)[:, None, None]))
        tokens = scaling(spectrum(torch.tensor(LENGTHS)[None, :, None]))
        for row, length in enumerate(LENGTHS):
            alone = scaling(spectrum(length))
            gain = torch.as_tensor(alone.gain, dtype=torch.float64)
            for result, at in ((rows, (row, 0)), (tokens, (0, row))):
                torch.testing.assert_close(result.theta[at], alone.theta, rtol=1e-15, atol=0)
                torch.testing.assert_close(
                    torch.as_tensor(result.gain, dtype=torch.float64).expand_as(result.theta[..., :1])[at], gain.view(1)
                )

    def test_compiled_it_looks_at_no_value(self, name):
        scaling = DYNAMIC[name]
        compiled = torch.compile(scaling, fullgraph=True, backend="eager")
        for length in (L, 3 * L):
            at_length = spectrum(torch.full((2, 1, 1), float(length), dtype=torch.float64))
            assert gap(compiled(at_length).theta, scaling(at_length).theta) < 1e-15


class TestShapes:
    def test_the_papers_ramp_is_not_the_codes(self):
        ramps = (YaRN(16, original_length=4096, ramp=ramp) for ramp in ("index", "rotations"))
        code, paper = (RoPE(128, scaling=ramp).spectrum().theta for ramp in ramps)
        assert 3.0 < (code / paper).max() < 3.1

    def test_llama3_without_a_ramp_is_a_step(self):
        step = Llama3(8, original_length=L, low_freq_factor=2, high_freq_factor=2)
        slower = spectrum().theta / step(spectrum()).theta
        assert set(slower.round().tolist()) == {1.0, 8.0}


class TestGains:
    def test_yarn(self):
        options = {"original_length": L}
        assert YaRN(1, **options).gain == 1.0
        assert YaRN(40, **options, mscale=1.0, mscale_all_dim=1.0).gain == 1.0
        assert YaRN(40, **options, mscale=1.0, mscale_all_dim=1.0).softmax_factor == pytest.approx(1.874, abs=1e-3)
        assert YaRN(40, **options).softmax_factor == 1.0
        for alone in (
            {"mscale": 2.0},
            {"mscale": 0.0},
            {"mscale": 2.0, "mscale_all_dim": 0.0},
            {"mscale_all_dim": 1.0},
        ):
            assert YaRN(40, **options, **alone).gain == YaRN(40, **options).gain, "as in transformers and the engines"
        assert YaRN(40, **options, attention_factor=1, mscale=2.0).gain == 1.0
        assert YaRN(40, **options, attn_factor=2.0).gain == pytest.approx(2 * YaRN(40, **options).gain)

    def test_longrope_by_set(self):
        options = {"original_length": L, "factor": 4.0, "short_gain": 1.0, "long_gain": 1.5}
        rope = RoPE(2 * PAIRS, scaling=LongRoPE(FACTORS, FACTORS, **options))
        assert rope.length_dependent
        assert [float(rope.spectrum(n).gain) for n in (L, L + 1)] == [1.0, 1.5]
        assert float(LongRoPE(FACTORS, FACTORS, original_length=L, factor=4, gain=1.25)(spectrum()).gain) == 1.25


class TestComposed:
    def test_scalings_that_bend_come_last(self):
        with pytest.raises(ValueError, match="YaRN"):
            RoPE(64, scaling=nn.Sequential(Resonance(), YaRN(4, original_length=L)))
        with pytest.raises(ValueError, match="MultiScale"):
            RoPE(64, scaling=nn.Sequential(PositionInterpolation(2), MultiScale(4)))
        with pytest.raises(ValueError, match="geometric"):
            RoPE(64, scaling=nn.Sequential(Proportional(0.5), YaRN(4, original_length=L)))

    def test_layers_of_longrope(self):
        layers = LongRoPE.of_layers(
            [[1.0] * 4] * 3, [[1.0, 2.0, 3.0, n] for n in (4.0, 5.0, 6.0)], original_length=L, factor=8
        )
        assert [layer.long[-1] for layer in layers] == [4.0, 5.0, 6.0]


class TestStartTokens:
    def test_only_the_first_tokens_are_plain(self):
        rope = RoPE(32, scaling=LongRoPE(FACTORS, FACTORS, original_length=L, factor=4, start_tokens=5))
        cos, _ = rope.table(torch.arange(10))
        baseline, scaled = (
            RoPE(32).table(torch.arange(10))[0],
            RoPE(32, scaling=LongRoPE(FACTORS, FACTORS, original_length=L, factor=4)).table(torch.arange(10))[0],
        )
        assert torch.equal(cos[:5], baseline[:5])
        assert torch.equal(cos[5:], scaled[5:])

    def test_relativity_is_lost_towards_them(self):
        """What the documentation says of start tokens."""
        rope = RoPE(32, scaling=LongRoPE(FACTORS, FACTORS, original_length=L, factor=1, start_tokens=16))
        q, k, _ = qkv(1, 1, 1, head_dim=32)
        scores = []
        for first in (8, 100, 200):
            a, b = rope(q, k, torch.tensor([first + 20]), torch.tensor([first]))
            scores.append((a @ b.mT).item())
        assert abs(scores[1] - scores[2]) < 1e-4 < 0.1 < abs(scores[0] - scores[1])


@pytest.mark.parametrize("scaling", [YaRN(4.0, original_length=1024), host_yarn.YaRN(4.0, original_length=1024)])
def test_an_option_is_set_once(scaling):
    """Rotations have made their tables of it: an edit would change the text and the spectrum alone."""
    rope = RoPE(64, scaling=scaling)
    positions = torch.arange(5000, 5004)
    before = rope.table(positions)
    for part in (scaling, rope.scaling):
        with pytest.raises(ValueError, match="factor"):
            part.factor = 16.0
    assert rope.scaling.factor == 4.0
    assert all(torch.equal(a, b) for a, b in zip(rope.table(positions), before, strict=True))
    again = pickle.loads(pickle.dumps(copy.deepcopy(rope).eval().train()))  # our own bytes
    assert all(torch.equal(a, b) for a, b in zip(again.table(positions), before, strict=True))


# Frequencies on the host, against 50 digits.


@pytest.mark.parametrize("base", [10_000.0, 500_000.0, 1e6, 1.5, 123.456])
@pytest.mark.parametrize("dim", [2, 7, 64, 128])
def test_geometric_is_correctly_rounded(dim, base):
    with mpmath.workdps(50):
        exact = [float(mpmath.mpf(base) ** (mpmath.mpf(-2 * j) / dim)) for j in range((dim + 1) // 2)]
    assert geometric(dim, base) == exact


def test_denominator():
    theta = geometric(8, 10_000.0, denominator=6)
    assert theta[0] == 1.0
    assert theta[-1] == pytest.approx(1e-4, rel=1e-15), "the last one reaches the base exactly"


def test_fractions_of_a_full_turn_are_fixed_point():
    for theta in (1.0, 1e-4, 3.3, 6.283185307179586, 7.0, -0.5):
        with mpmath.workdps(60):
            fraction = mpmath.mpf(theta) / (2 * mpmath.pi)
            exact = int(mpmath.nint(fraction * 2**64))
        (got,) = turns([theta])
        assert -(2**63) <= got < 2**63
        assert (got - exact) % 2**64 == 0


def test_the_host_keeps_its_digits():
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.bfloat16)
        with torch.device("meta"):
            values = host_float64([1 / 3])
            spectrum = RoPE(8).spectrum()
    finally:
        torch.set_default_dtype(before)
    assert (values.dtype, values.device.type, values.item()) == (torch.float64, "cpu", 1 / 3)
    assert spectrum.theta.tolist() == geometric(8, 10_000.0)


@pytest.mark.parametrize("name", [n for n, entry in CATALOGUE.items() if isinstance(entry.scaling, type)])
def test_the_gain_is_always_a_tensor(name):
    """Without axes for one length, like the lengths for several, whatever the scaling does."""
    rope = create_encoding(name, head_dim=16, num_heads=4, train_length=8)
    assert isinstance(rope, RoPE)
    for length in (None, 4, 100):
        gain = rope.spectrum(length).gain
        assert (gain.dtype, gain.device.type, gain.ndim) == (torch.float64, "cpu", 0)


# Bases by length against the tables of their sources.


SIMILAR = {1000: 4.3e3, 2000: 1.6e4, 4000: 2.7e4, 8000: 8.4e4, 64 * 1024: 2.1e6}
CRITICAL = {8192: 4, 16384: 14, 24576: 31, 32768: 55}  # LongLLaDA's factors of a base of 500,000, rounded up


@pytest.mark.parametrize(("length", "base"), SIMILAR.items())
def test_least_base_that_tells_similar_keys_apart(length: int, base: float) -> None:
    assert base_for(length) == base


@pytest.mark.parametrize(("length", "factor"), CRITICAL.items())
def test_base_to_go_on_training_with(length: int, factor: int) -> None:
    result = base_for(length, rule="critical", trained=4096, base=500_000) / 500_000
    assert factor - 1 < result <= factor


def test_no_base_is_lowered() -> None:
    assert base_for(4096, rule="critical", trained=4096, base=500_000) == 500_000
    assert base_for(2048, rule="critical", trained=4096) == 10_000
