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

Spec = dict[str, Any]
Arrays = dict[str, Tensor]
YARN = (
    "beta_fast", "beta_slow", "truncate", "mscale", "mscale_all_dim", "attention_factor", "extrapolation_factor",
    "attn_factor",
)  # fmt: skip


def yarn(spec: Spec, _: Arrays) -> nn.Module:
    options = {word: spec[word] for word in YARN if word in spec}
    return YaRN(spec["factor"], original_length=spec["original_length"], **options)


def part_ntk(spec: Spec, _: Arrays) -> nn.Module:
    words = ("original_length", "ntk_factor", "extrapolation_factor")
    return PartNTK(spec["factor"], **{word: spec[word] for word in words})


def llama3(spec: Spec, _: Arrays) -> nn.Module:
    bounds = {word: spec[word] for word in ("low_freq_factor", "high_freq_factor")}
    return Llama3(spec["factor"], original_length=spec["original_max_position_embeddings"], **bounds)


def longrope(spec: Spec, arrays: Arrays) -> nn.Module:
    sets = (arrays["short_factor"].tolist(), arrays["long_factor"].tolist())
    return LongRoPE(*sets, original_length=spec["original_length"], factor=spec["factor"])


def multiscale(spec: Spec, _: Arrays) -> nn.Module:
    low, high = spec["base_range"]
    bases = MultiScale(spec["num_heads"], min_base=low, max_base=high)
    return nn.Sequential(bases, PositionInterpolation(spec["scaling_factor"]))


def by_parts(spec: Spec, _: Arrays) -> nn.Module:
    return NTKByParts(spec["factor"], original_length=spec["original_length"], alpha=spec["alpha"], beta=spec["beta"])


def clipped(spec: Spec, _: Arrays) -> nn.Module:
    clip = Clipped(20, kind="soft" if spec["kind"] == "cope" else "hard")
    return nn.Sequential(llama3(spec["llama3_scaling"], {}), clip) if spec["llama3_scaling"] else clip


SCALINGS: dict[str, Callable[[Spec, Arrays], nn.Module]] = {
    "linear": lambda spec, _: PositionInterpolation(spec["factor"]),
    "ntk": lambda spec, _: NTKAware(spec["factor"]),
    "dynamic": lambda spec, _: DynamicNTK(spec["factor"], original_length=spec["max_position_embeddings"]),
    "dynamic_ntk_original": lambda spec, _: DynamicNTK(spec["ntk"], original_length=spec["original_length"]),
    "dynamic_pi": lambda spec, _: DynamicPositionInterpolation(original_length=spec["original_length"]),
    "ntk_by_parts": by_parts,
    "part_ntk_legacy": part_ntk,
    "yarn": yarn,
    "yarn_original": yarn,
    "dynamic_yarn": lambda spec, _: DynamicYaRN(original_length=spec["original_length"]),
    "llama3": llama3,
    "proportional": lambda spec, _: nn.Sequential(
        Proportional(spec["partial_rotary_factor"]), PositionInterpolation(spec["factor"])
    ),
    "longrope": longrope,
    "resonance": lambda spec, _: Resonance(),
    "resonance_yarn": lambda spec, arrays: nn.Sequential(yarn(spec, arrays), Resonance()),
    "resonance_ntk": lambda spec, _: nn.Sequential(NTKAware(spec["factor"]), Resonance()),
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
FILES = [name for name in FILES if config(name)["method"] in SCALINGS]


class Sample(NamedTuple):
    rope: RoPE
    length: int | None
    arrays: Arrays
    spec: Spec


def sample(name: str, layout: str = "half", dtype: torch.dtype = torch.float64) -> Sample:
    spec, arrays = config(name), load(name, dtype)
    head_dim = spec.get("head_dim", spec.get("dim"))
    partial = spec["method"] == "yarn" and "partial_rotary_factor" in spec
    rotary_dim = int(head_dim * spec["partial_rotary_factor"]) if partial else None
    length = spec.get("seq_len", spec.get("main_len"))
    if spec["method"] == "longrope":
        length = spec["original_length"] + 1
    scaling = SCALINGS[spec["method"]](spec, load(name))
    rope = RoPE(
        head_dim,
        base=spec.get("theta", spec.get("rope_theta", 10_000.0)),
        layout=layout,
        rotary_dim=rotary_dim,
        scaling=scaling,
    )
    return Sample(rope, length, arrays, spec)


def test_every_file_of_a_scaling_is_used():
    assert len(FILES) > 40
    assert {config(name)["method"] for name in FILES} == set(SCALINGS)


@pytest.mark.parametrize("name", FILES)
def test_frequencies_and_gain(name):
    rope, length, arrays, spec = sample(name)
    spectrum, expected = rope.spectrum(length), arrays.get("inv_freq_f64", arrays.get("inv_freqs_f64"))
    if spec["method"] == "dynamic_pi":  # the authors squeeze positions instead
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
    rope, _, arrays, spec = sample(name)
    for length in spec["lens"]:
        torch.testing.assert_close(rope.spectrum(length).theta, arrays[f"inv_freq_f64_len{length}"], rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", [name for name in names("longrope_*") if config(name)["method"] == "longrope"])
def test_the_short_set_up_to_the_original_length(name):
    rope, _, arrays, spec = sample(name)
    length = spec["original_length"]
    torch.testing.assert_close(rope.spectrum(length).theta, arrays["inv_freq_f64_short"], rtol=1e-12, atol=0)
    cos, _ = rope.table(arrays["positions"], length, like=torch.zeros((), dtype=torch.float64))
    assert gap(cos, arrays["cos_f64_short"]) < 1e-9


@pytest.mark.parametrize("name", names("longrope_variants_*"))
class TestMicrosoftsVariants:
    def test_dynamic_factors(self, name):
        spec, arrays = config(name), load(name)
        options = {"original_length": spec["original_length"], "factor": spec["factor"]}
        rope = RoPE(spec["dim"], base=spec["theta"], scaling=DynamicLongRoPE(arrays["factors"].tolist(), **options))
        expected = arrays["dynamic_inv_freq_f64"]
        torch.testing.assert_close(rope.spectrum(spec["dynamic_seq_len"]).theta, expected, rtol=1e-12, atol=0)

    def test_start_tokens(self, name):
        spec, arrays = config(name), load(name)
        factors, options = arrays["factors"].tolist(), {"original_length": spec["original_length"]}
        options |= {"factor": spec["factor"], "start_tokens": spec["start_tokens"]}
        for policy in ("su", "yarn"):
            scaling = LongRoPE(factors, factors, gain=policy, **options)
            assert abs(scaling.long_gain - float(arrays[f"mscale_{policy}"])) < 1e-15
        scaling = LongRoPE(factors, factors, **options)
        rope = RoPE(spec["dim"], base=spec["theta"], scaling=scaling)
        cos, sin = rope.table(arrays["mixed_positions"], like=torch.zeros((), dtype=torch.float64))
        assert gap(cos, arrays["mixed_cos"]) < 1e-9
        assert gap(sin, arrays["mixed_sin"]) < 1e-9


@pytest.mark.parametrize("name", names("resonance*"))
def test_wavelengths_are_the_authors_in_both_roundings(name):
    spec, arrays = config(name), load(name)
    for rounding, ending in (("float64", ""), ("float32", "_f32")):
        before = {"resonance": [], "resonance_ntk": [NTKAware(spec.get("factor", 1.0))]}.get(spec["method"])
        before = [yarn(spec, arrays)] if before is None else before
        rope = RoPE(spec["dim"], base=spec["theta"], scaling=nn.Sequential(*before, Resonance(rounding=rounding)))
        wavelengths = (2 * torch.pi / rope.spectrum().theta).round()
        off = (wavelengths - arrays[f"wavelengths{ending}"]).abs().max()
        assert off <= (0 if rounding == "float64" else 1), "float32 powers differ in the last bit between builds"
