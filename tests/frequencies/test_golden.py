"""Every scaling against the authors' code: frequencies, gain, cos and sin, rotated queries and keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from posenc import DynamicNTK, Llama3, LongRoPE, NTKAware, PositionInterpolation, Proportional, RoPE, YaRN
from posenc.frequencies import (
    Clipped,
    DynamicLongRoPE,
    DynamicPositionInterpolation,
    DynamicYaRN,
    MultiScale,
    NTKByParts,
    PartNTK,
    Resonance,
)
from tests.golden import config, load, names
from tests.samples import gap

Given = dict[str, Any]
Arrays = dict[str, Tensor]
YARN = (
    "beta_fast", "beta_slow", "truncate", "mscale", "mscale_all_dim", "attention_factor", "extrapolation_factor",
    "attn_factor",
)  # fmt: skip


def yarn(given: Given, _: Arrays) -> nn.Module:
    options = {word: given[word] for word in YARN if word in given}
    return YaRN(given["factor"], original_length=given["original_length"], **options)


def part_ntk(given: Given, _: Arrays) -> nn.Module:
    words = ("original_length", "ntk_factor", "extrapolation_factor")
    return PartNTK(given["factor"], **{word: given[word] for word in words})


def llama3(given: Given, _: Arrays) -> nn.Module:
    bounds = {word: given[word] for word in ("low_freq_factor", "high_freq_factor")}
    return Llama3(given["factor"], original_length=given["original_max_position_embeddings"], **bounds)


def longrope(given: Given, arrays: Arrays) -> nn.Module:
    sets = (arrays["short_factor"].tolist(), arrays["long_factor"].tolist())
    return LongRoPE(*sets, original_length=given["original_length"], factor=given["factor"])


def multiscale(given: Given, _: Arrays) -> nn.Module:
    low, high = given["base_range"]
    bases = MultiScale(given["num_heads"], min_base=low, max_base=high)
    return nn.Sequential(bases, PositionInterpolation(given["scaling_factor"]))


def by_parts(given: Given, _: Arrays) -> nn.Module:
    return NTKByParts(
        given["factor"], original_length=given["original_length"], alpha=given["alpha"], beta=given["beta"]
    )


def clipped(given: Given, _: Arrays) -> nn.Module:
    clip = Clipped(20, kind="soft" if given["kind"] == "cope" else "hard")
    return nn.Sequential(llama3(given["llama3_scaling"], {}), clip) if given["llama3_scaling"] else clip


MADE: dict[str, Callable[[Given, Arrays], nn.Module]] = {
    "linear": lambda given, _: PositionInterpolation(given["factor"]),
    "ntk": lambda given, _: NTKAware(given["factor"]),
    "dynamic": lambda given, _: DynamicNTK(given["factor"], original_length=given["max_position_embeddings"]),
    "dynamic_ntk_original": lambda given, _: DynamicNTK(given["ntk"], original_length=given["original_length"]),
    "dynamic_pi": lambda given, _: DynamicPositionInterpolation(original_length=given["original_length"]),
    "ntk_by_parts": by_parts,
    "part_ntk_legacy": part_ntk,
    "yarn": yarn,
    "yarn_original": yarn,
    "dynamic_yarn": lambda given, _: DynamicYaRN(original_length=given["original_length"]),
    "llama3": llama3,
    "proportional": lambda given, _: nn.Sequential(
        Proportional(given["partial_rotary_factor"]), PositionInterpolation(given["factor"])
    ),
    "longrope": longrope,
    "resonance": lambda given, _: Resonance(),
    "resonance_yarn": lambda given, arrays: nn.Sequential(yarn(given, arrays), Resonance()),
    "resonance_ntk": lambda given, _: nn.Sequential(NTKAware(given["factor"]), Resonance()),
    "multiscale": multiscale,
    "clipped_rope": clipped,
}
PATTERNS = (
    "linear_*",
    "ntk_*",
    "dynamic_*",
    "part_*",
    "yarn_*",
    "llama3_*",
    "proportional_*",
    "clipped_*",
    "longrope_*_d*",
)
FILES = [name for pattern in (*PATTERNS, "resonance_*", "multiscale_*") for name in names(pattern)]
FILES = [name for name in FILES if config(name)["method"] in MADE]


class Sample(NamedTuple):
    rope: RoPE
    length: int | None
    arrays: Arrays
    given: Given


def sample(name: str, layout: str = "half", dtype: torch.dtype = torch.float64) -> Sample:
    given, arrays = config(name), load(name, dtype)
    head_dim = given.get("head_dim", given.get("dim"))
    partial = given["method"] == "yarn" and "partial_rotary_factor" in given
    rotary_dim = int(head_dim * given["partial_rotary_factor"]) if partial else None
    length = given.get("seq_len", given.get("main_len"))
    if given["method"] == "longrope":
        length = given["original_length"] + 1
    scaling = MADE[given["method"]](given, load(name))
    rope = RoPE(
        head_dim,
        base=given.get("theta", given.get("rope_theta", 10_000.0)),
        layout=layout,
        rotary_dim=rotary_dim,
        scaling=scaling,
    )
    return Sample(rope, length, arrays, given)


def test_every_file_of_a_scaling_is_used():
    assert len(FILES) > 40
    assert {config(name)["method"] for name in FILES} == set(MADE)


@pytest.mark.parametrize("name", FILES)
def test_frequencies_and_gain(name):
    rope, length, arrays, given = sample(name)
    spectrum, expected = rope.spectrum(length), arrays.get("inv_freq_f64", arrays.get("inv_freqs_f64"))
    if given["method"] == "dynamic_pi":  # the authors squeeze positions instead
        expected = expected * arrays["position_multiplier"]
    torch.testing.assert_close(spectrum.theta, expected, rtol=1e-12, atol=0)
    if "attention_factor" in arrays:
        assert abs(float(spectrum.gain) - float(arrays["attention_factor"])) < 1e-15


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "graph"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", FILES)
def test_cos_and_sin(name, dtype, traced, monkeypatch):
    rope, length, arrays, _ = sample(name)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: traced)  # the form that compilers and exporters get
    cos, sin = rope.table(arrays["positions"], length, like=torch.zeros((), dtype=dtype))
    gain = float(rope.spectrum(length).gain)
    tolerance = 1e-9 if dtype == torch.float64 else 3e-7 * max(1.0, gain)
    assert gap(cos, arrays["cos_f64"]) < tolerance
    assert gap(sin, arrays["sin_f64"]) < tolerance


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("name", FILES)
def test_rotated_queries_and_keys(name, layout, dtype):
    ending = "half" if layout == "half" else "inter"
    rope, length, arrays, _ = sample(name, layout)
    if f"q_{ending}" not in arrays:
        assert name.startswith(("multiscale", "clipped"))
        return
    q, k, positions = arrays["q"].to(dtype), arrays["k"].to(dtype), arrays["positions"]
    span = None if length is None else (torch.tensor([length]), torch.tensor([length]))
    rotated = rope(q, k, positions, positions, span)
    for got, expected in zip(rotated, (arrays[f"q_{ending}"], arrays[f"k_{ending}"]), strict=True):
        assert gap(got, expected) < (1e-8 if dtype == torch.float64 else 1e-5)


@pytest.mark.parametrize("name", names("dynamic_hf_*"))
def test_dynamic_frequencies_at_every_length(name):
    rope, _, arrays, given = sample(name)
    for length in given["lens"]:
        torch.testing.assert_close(rope.spectrum(length).theta, arrays[f"inv_freq_f64_len{length}"], rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", [name for name in names("longrope_*") if config(name)["method"] == "longrope"])
def test_the_short_set_up_to_the_original_length(name):
    rope, _, arrays, given = sample(name)
    length = given["original_length"]
    torch.testing.assert_close(rope.spectrum(length).theta, arrays["inv_freq_f64_short"], rtol=1e-12, atol=0)
    cos, _ = rope.table(arrays["positions"], length, like=torch.zeros((), dtype=torch.float64))
    assert gap(cos, arrays["cos_f64_short"]) < 1e-9


@pytest.mark.parametrize("name", names("longrope_variants_*"))
class TestMicrosoftsVariants:
    def test_dynamic_factors(self, name):
        given, arrays = config(name), load(name)
        options = {"original_length": given["original_length"], "factor": given["factor"]}
        rope = RoPE(given["dim"], base=given["theta"], scaling=DynamicLongRoPE(arrays["factors"].tolist(), **options))
        expected = arrays["dynamic_inv_freq_f64"]
        torch.testing.assert_close(rope.spectrum(given["dynamic_seq_len"]).theta, expected, rtol=1e-12, atol=0)

    def test_start_tokens(self, name):
        given, arrays = config(name), load(name)
        factors, options = arrays["factors"].tolist(), {"original_length": given["original_length"]}
        options |= {"factor": given["factor"], "start_tokens": given["start_tokens"]}
        for policy in ("su", "yarn"):
            scaling = LongRoPE(factors, factors, gain=policy, **options)
            assert abs(scaling.long_gain - float(arrays[f"mscale_{policy}"])) < 1e-15
        scaling = LongRoPE(factors, factors, **options)
        rope = RoPE(given["dim"], base=given["theta"], scaling=scaling)
        cos, sin = rope.table(arrays["mixed_positions"], like=torch.zeros((), dtype=torch.float64))
        assert gap(cos, arrays["mixed_cos"]) < 1e-9
        assert gap(sin, arrays["mixed_sin"]) < 1e-9


@pytest.mark.parametrize("name", names("resonance*"))
def test_wavelengths_are_the_authors_in_both_roundings(name):
    given, arrays = config(name), load(name)
    for rounding, ending in (("float64", ""), ("float32", "_f32")):
        before = {"resonance": [], "resonance_ntk": [NTKAware(given.get("factor", 1.0))]}.get(given["method"])
        before = [yarn(given, arrays)] if before is None else before
        rope = RoPE(given["dim"], base=given["theta"], scaling=nn.Sequential(*before, Resonance(rounding=rounding)))
        wavelengths = (2 * torch.pi / rope.spectrum().theta).round()
        off = (wavelengths - arrays[f"wavelengths{ending}"]).abs().max()
        assert off <= (0 if rounding == "float64" else 1), "float32 powers differ in the last bit between builds"
