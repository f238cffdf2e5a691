"""Formulas in Python's floats: equal to the same formulas in tensors, and without torch."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest

from posenc import MRoPE, RoPE
from posenc.frequencies import Resonance
from posenc.frequencies.by_parts import NTKByParts, PartNTK
from posenc.frequencies.dype import DyPE
from posenc.frequencies.host import Chain, Formula, Vector, index_of
from posenc.frequencies.interpolation import DynamicPositionInterpolation, PositionInterpolation
from posenc.frequencies.llama3 import Llama3
from posenc.frequencies.longrope import DynamicLongRoPE, LongRoPE
from posenc.frequencies.modules import module_of
from posenc.frequencies.ntk import DynamicNTK, NTKAware
from posenc.frequencies.proportional import Proportional
from posenc.frequencies.riflex import RIFLEx
from posenc.frequencies.rotation import MRoPESpec, RoPESpec
from posenc.frequencies.yarn import DynamicYaRN, YaRN
from posenc.hf.config.rotation import built

PAIRS = 32
RISING = [1.0 + j / 7 for j in range(PAIRS)]
FORMULAS: list[Formula] = [
    PositionInterpolation(4.0),
    DynamicPositionInterpolation(original_length=1024),
    NTKAware(4.0),
    DynamicNTK(2.0, original_length=1024),
    DynamicNTK(original_length=1024, schedule="powers"),
    NTKByParts(4.0, original_length=1024),
    PartNTK(4.0, original_length=1024, ntk_factor=0.5, extrapolation_factor=0.75),
    YaRN(4.0, original_length=1024),
    YaRN(4.0, original_length=1024, ramp="rotations", mscale=0.7, mscale_all_dim=1.2),
    YaRN(32.0, original_length=4096, truncate=False, beta_fast=5.0, beta_slow=5.0),
    DynamicYaRN(original_length=1024),
    DynamicYaRN(original_length=1024, ramp="rotations"),
    Llama3(8.0, original_length=1024),
    Llama3(8.0, original_length=1024, low_freq_factor=2.0, high_freq_factor=2.0),
    LongRoPE([1.0] * PAIRS, RISING, original_length=1024, factor=4.0, start_tokens=16),
    DynamicLongRoPE(RISING, original_length=1024, factor=4.0),
    Proportional(0.25),
    RIFLEx(4, length=66),
    DyPE(4096, original_length=1024, timestep=0.5),
    DyPE(4096, original_length=1024, timestep=0.5, method="ntk"),
    Chain(Proportional(0.5), PositionInterpolation(2.0)),
]


@pytest.mark.parametrize("length", [None, 17, 1024, 1025, 5000, 2**20])
@pytest.mark.parametrize("formula", FORMULAS, ids=str)
def test_floats_and_tensors_give_the_same_spectrum(formula: Formula, length: int | None) -> None:
    host = RoPESpec(2 * PAIRS, base=500_000.0, scaling=formula)
    tensors = RoPE(2 * PAIRS, base=500_000.0, scaling=module_of(formula))
    assert host.length_dependent == tensors.length_dependent
    got, expected = host.spectrum(length), tensors.spectrum(length)
    assert got.theta.tolist() == pytest.approx(expected.theta.tolist(), rel=1e-14, abs=0)
    assert float(got.gain) == pytest.approx(float(expected.gain), rel=1e-14)
    assert (got.start is None) == (expected.start is None)
    if got.start is not None and expected.start is not None:
        assert got.start.tokens == expected.start.tokens
        assert got.start.theta.tolist() == expected.start.theta.tolist()


@pytest.mark.parametrize("formula", FORMULAS, ids=str)
def test_a_description_becomes_a_module_with_the_same_text(formula: Formula) -> None:
    host = RoPESpec(2 * PAIRS, base=500_000.0, layout="interleaved", scaling=formula)
    module = built(host)
    assert type(module) is RoPE
    assert built(host) is module
    assert built(module) is module
    assert str(formula) == str(module.scaling)
    assert (module.base, module.layout) == (500_000.0, "interleaved")


def test_every_formula_has_a_module() -> None:
    def leaves(cls: type[Formula]) -> set[type[Formula]]:
        return {inner for sub in cls.__subclasses__() for inner in {sub, *leaves(sub)}}

    formulas = {
        cls for cls in leaves(Formula) if cls.__module__.startswith("posenc.") and "modules" not in cls.__module__
    }
    assert {type(formula) for formula in FORMULAS} == formulas


def test_the_axes_of_m_rope() -> None:
    options = {"sections": (24, 20, 20), "interleaved": True, "base": 5e6}
    host, module = MRoPESpec(128, **options), MRoPE(128, **options)
    assert host.order() == module.order()
    assert host.replace(time_last=True, interleaved=False).order() != host.order()
    rotation = built(host)
    assert isinstance(rotation, MRoPE)
    assert rotation.order() == module.order()


@pytest.mark.parametrize("cls", [RoPESpec, RoPE])
def test_both_refuse_the_same(cls: type[RoPESpec]) -> None:
    for arguments, name in [
        ({"head_dim": 0}, "head_dim"),
        ({"head_dim": 64, "rotary_dim": 66}, "rotary_dim"),
        ({"head_dim": 64, "rotary_dim": 7}, "rotary_dim"),
        ({"head_dim": 64, "layout": "Half"}, "layout"),
        ({"head_dim": 64, "base": 1.0}, "base"),
    ]:
        with pytest.raises(ValueError, match=rf"^{name} must be"):
            cls(**arguments)


def test_a_scaling_without_a_formula_computes_with_tensors() -> None:
    host = RoPESpec(64, scaling=Resonance())
    assert host.spectrum().theta.tolist() == RoPE(64, scaling=Resonance()).spectrum().theta.tolist()


def test_an_index_of_what_is_not_geometric_is_refused_in_floats_too() -> None:
    with pytest.raises(ValueError, match="geometric"):
        index_of(Vector([1.0, 0.9, 0.1]), 0.5, "YaRN")
    assert float(index_of(Vector([1.0, 0.1, 0.01]), 0.1, "YaRN")) == pytest.approx(1.0)
    assert math.isinf(float(Vector(math.inf)))


def test_reading_explaining_and_writing_a_configuration_needs_no_torch() -> None:
    code = (
        "import sys, posenc_cli, posenc, posenc.hf as hf\n"
        "block = {'rope_type': 'yarn', 'factor': 4.0, 'original_max_position_embeddings': 4096, 'rope_theta': 1e6}\n"
        "read = hf.read_rope({'model_type': 'qwen3', 'head_dim': 128, 'rope_parameters': block,\n"
        "                     'max_position_embeddings': 16384})\n"
        "str(hf.explain(read)), read.to_config(version=4), hf.serve_flags(read)\n"
        "assert not {'torch', 'numpy', 'transformers'} & set(sys.modules)\n"
        "assert type(read.rope) is posenc.RoPE\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
