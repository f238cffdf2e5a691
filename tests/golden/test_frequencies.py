"""Frequencies of every scaling, from the authors' code: gain, cosines and sines, rotated queries and keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from posenc import DynamicNTK, Llama3, LongRoPE, NTKAware, PositionInterpolation, RoPE, YaRN
from posenc.frequencies import (
    Clipped,
    DynamicLongRoPE,
    DynamicPositionInterpolation,
    DynamicYaRN,
    MultiScale,
    NTKByParts,
    PartNTK,
    Proportional,
    Resonance,
    Spectrum,
    phase,
)
from posenc.frequencies.clex import CLEX
from tests.golden import config, load, names
from tests.golden.runner import Comparisons, golden_test, relative

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
    "linear_*", "ntk_*", "dynamic_*", "part_*", "yarn_*", "llama3_*", "proportional_*", "clipped_*", "longrope_*_d??",
    "resonance_*", "multiscale_*",
)  # fmt: skip
TABLES = ((torch.float64, 1e-9), (torch.float32, 3e-7))


def like(dtype: torch.dtype) -> Tensor:
    return torch.zeros((), dtype=dtype)


def scaled(name: str) -> Comparisons:
    """Frequencies and gain; cosines and sines, eager and as compilers get them; rotated queries and keys."""
    spec, arrays = config(name), load(name)
    method, head_dim = spec["method"], spec.get("head_dim", spec.get("dim"))
    partial = method == "yarn" and "partial_rotary_factor" in spec
    options = {
        "base": spec.get("theta", spec.get("rope_theta", 10_000.0)),
        "rotary_dim": int(head_dim * spec["partial_rotary_factor"]) if partial else None,
        "scaling": SCALINGS[method](spec, arrays),
    }
    length = spec["original_length"] + 1 if method == "longrope" else spec.get("seq_len", spec.get("main_len"))
    rope, positions = RoPE(head_dim, **options), arrays["positions"]
    spectrum, theta = rope.spectrum(length), arrays.get("inv_freq_f64", arrays.get("inv_freqs_f64"))
    if method == "dynamic_pi":  # the authors squeeze positions instead
        theta = theta * arrays["position_multiplier"]
    yield *relative(spectrum.theta, theta), 1e-12
    gain = float(spectrum.gain)
    if "attention_factor" in arrays:
        assert abs(gain - float(arrays["attention_factor"])) < 1e-15
    for traced in (False, True):
        for dtype, tolerance in TABLES:
            with mock.patch.object(phase, "tracing", lambda traced=traced: traced):
                cos, sin = rope.table(positions, length, like=like(dtype))
            slack = max(1.0, gain) if dtype == torch.float32 else 1.0
            yield cos, arrays["cos_f64"], tolerance * slack
            yield sin, arrays["sin_f64"], tolerance * slack
    span = None if length is None else (torch.tensor([length]), torch.tensor([length]))
    for layout, ending in (("half", "half"), ("interleaved", "inter")):
        if f"q_{ending}" not in arrays:
            assert name.startswith(("multiscale", "clipped"))
            continue
        for dtype, tolerance in ((torch.float64, 1e-8), (torch.float32, 1e-5)):
            q, k = (arrays[x].to(dtype) for x in "qk")
            q, k = RoPE(head_dim, layout=layout, **options)(q, k, positions, positions, span)
            yield q, arrays[f"q_{ending}"], tolerance
            yield k, arrays[f"k_{ending}"], tolerance
    for each in spec.get("lens", ()):  # dynamic frequencies at every length
        yield *relative(rope.spectrum(each).theta, arrays[f"inv_freq_f64_len{each}"]), 1e-12
    if method == "longrope":  # the short set up to the original length
        length = spec["original_length"]
        yield *relative(rope.spectrum(length).theta, arrays["inv_freq_f64_short"]), 1e-12
        yield rope.table(positions, length, like=like(torch.float64))[0], arrays["cos_f64_short"], 1e-9


def variants_of_longrope(name: str) -> Comparisons:
    """Microsoft's: factors that follow the length, gains, and first tokens that are not scaled."""
    spec, arrays = config(name), load(name)
    factors, options = arrays["factors"].tolist(), {word: spec[word] for word in ("original_length", "factor")}
    rope = RoPE(spec["dim"], base=spec["theta"], scaling=DynamicLongRoPE(factors, **options))
    yield *relative(rope.spectrum(spec["dynamic_seq_len"]).theta, arrays["dynamic_inv_freq_f64"]), 1e-12
    options["start_tokens"] = spec["start_tokens"]
    for policy in ("su", "yarn"):
        scaling = LongRoPE(factors, factors, gain=policy, **options)
        assert abs(scaling.long_gain - float(arrays[f"mscale_{policy}"])) < 1e-15
    rope = RoPE(spec["dim"], base=spec["theta"], scaling=LongRoPE(factors, factors, **options))
    cos, sin = rope.table(arrays["mixed_positions"], like=like(torch.float64))
    yield cos, arrays["mixed_cos"], 1e-9
    yield sin, arrays["mixed_sin"], 1e-9


def rounded_wavelengths(name: str) -> Comparisons:
    """Equal in float64; float32 powers differ in the last bit between builds, and wavelengths by 1."""
    spec, arrays = config(name), load(name)
    before = {"resonance": [], "resonance_ntk": [NTKAware(spec.get("factor", 1.0))]}.get(spec["method"])
    before = [yarn(spec, arrays)] if before is None else before
    for rounding, ending, off in (("float64", "", 0.5), ("float32", "_f32", 1.5)):
        rope = RoPE(spec["dim"], base=spec["theta"], scaling=nn.Sequential(*before, Resonance(rounding=rounding)))
        yield (2 * torch.pi / rope.spectrum().theta).round(), arrays[f"wavelengths{ending}"], off


def clex_of(name: str, **options: float) -> CLEX:
    """The CLEX that a file was made with."""
    built, golden = {"param_factor": 1, "act": "tanh", "time_dt": 0.1, **config(name)}, load(name)
    clex = CLEX(
        built["dim"] // 2, original_length=built["original_length"], max_factor=built["max_factor"],
        param_factor=built["param_factor"], activation=built["act"], step=built["time_dt"], **options,
    )  # fmt: skip
    clex.load_state_dict({"up_proj": golden["ode_up_proj"], "down_proj": golden["ode_down_proj"]})
    return clex


def clex(name: str) -> Comparisons:
    """Its solver, the scale that a length asks for, and RoPE under it."""
    golden, built = load(name), config(name)
    theta, scales, base = golden["inv_freq_base_f64"], golden["scales"], {"time_base": 10_000.0}
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            released, right = clex_of(name, **base), clex_of(name)
            yield *relative(released.frequencies(theta, scales), golden["freqs_f64"]), 1e-12
            yield *relative(right.frequencies(theta, scales), golden["freqs_thetafix_f64"]), 1e-12
            fractional = released.frequencies(theta, golden["fractional_scales"])
            yield *relative(fractional, golden["freqs_fractional_f64"]), 1e-12
        yield *relative(released.frequencies(theta, scales), golden["freqs_dopri8_f64"]), 1e-5
    lengths = golden["select_lens"]
    got = clex_of(name, **base)(Spectrum(theta, lengths.unsqueeze(-1))).theta
    yield *relative(got, golden["freqs_f64"][golden["select_t"] - 1]), 1e-12
    for length, row in zip(lengths.tolist(), got, strict=True):
        assert torch.equal(clex_of(name, **base)(Spectrum(theta, length)).theta, row)
    length, positions = built["original_length"] * built["max_factor"], golden["positions"]
    for layout, ending in (("half", "half"), ("interleaved", "inter")):
        rope = RoPE(built["dim"], base=built["theta"], layout=layout, scaling=clex_of(name, **base))
        assert rope.spectrum(length).gain == 1.0
        for dtype, tolerance in TABLES:
            q = golden["q"].to(dtype)
            cos, sin = rope.table(positions, length, like=q)
            yield cos, golden["cos_f64"], tolerance
            yield sin, golden["sin_f64"], tolerance
            yield rope.rotate(q, (cos, sin)), golden[f"q_{ending}"], 1e-8 if dtype == torch.float64 else 5e-6


def clex_untrained(name: str) -> Comparisons:
    """It is NTK, but for the solver's own error."""
    yield from clex(name)
    golden = load(name)
    got = CLEX(32, original_length=2048, max_factor=8, step=0.1).frequencies(
        golden["inv_freq_base_f64"], golden["scales"]
    )
    yield *relative(got, golden["freqs_f64"]), 1e-12
    yield *relative(got, golden["ntk_2t_minus_1"]), 5e-6


def clex_training_step(name: str) -> Comparisons:
    golden, built, clex = load(name), config(name), clex_of(name)
    positions, length = golden["ex_positions"].long(), int(golden["t"]) * built["original_length"]
    cos, sin = RoPE(32, scaling=clex).table(positions, length, like=golden["cos_f64"])
    yield cos, golden["cos_f64"], 1e-9
    yield sin, golden["sin_f64"], 1e-9
    drawn, _ = clex.sample(built["seq_len"])
    assert (positions[0], positions[-1], len(positions)) == (drawn[0], length - 1, len(drawn))


def test_every_scaling_has_a_file():
    found = [name for pattern in PATTERNS for name in names(pattern)]
    assert {config(name)["method"] for name in found} == set(SCALINGS)


test_frequencies = golden_test({
    **dict.fromkeys(PATTERNS, scaled),
    "longrope_variants_*": variants_of_longrope,
    "resonance*": rounded_wavelengths,
    "clex_[abc]_*": clex,
    "clex_zeroinit_*": clex_untrained,
    "clex_train_*": clex_training_step,
})  # fmt: skip
