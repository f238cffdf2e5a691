"""Frequencies: a `Spectrum`, the exact angles (`phase`), and scalings from a spectrum to a spectrum, one a file."""

from posenc.frequencies.bases import base_for as base_for
from posenc.frequencies.by_parts import NTKByParts as NTKByParts
from posenc.frequencies.by_parts import PartNTK as PartNTK
from posenc.frequencies.clex import CLEX as CLEX
from posenc.frequencies.clipped import Clipped as Clipped
from posenc.frequencies.interpolation import DynamicPositionInterpolation as DynamicPositionInterpolation
from posenc.frequencies.interpolation import PositionInterpolation as PositionInterpolation
from posenc.frequencies.llama3 import Llama3 as Llama3
from posenc.frequencies.longrope import DynamicLongRoPE as DynamicLongRoPE
from posenc.frequencies.longrope import LongRoPE as LongRoPE
from posenc.frequencies.multiscale import MultiScale as MultiScale
from posenc.frequencies.ntk import DynamicNTK as DynamicNTK
from posenc.frequencies.ntk import NTKAware as NTKAware
from posenc.frequencies.proportional import Proportional as Proportional
from posenc.frequencies.resonance import Resonance as Resonance
from posenc.frequencies.spectrum import Scaling as Scaling
from posenc.frequencies.spectrum import Spectrum as Spectrum
from posenc.frequencies.yarn import DynamicYaRN as DynamicYaRN
from posenc.frequencies.yarn import YaRN as YaRN

__all__ = [
    "base_for",
    "NTKByParts",
    "PartNTK",
    "CLEX",
    "Clipped",
    "DynamicPositionInterpolation",
    "PositionInterpolation",
    "Llama3",
    "DynamicLongRoPE",
    "LongRoPE",
    "MultiScale",
    "DynamicNTK",
    "NTKAware",
    "Proportional",
    "Resonance",
    "Scaling",
    "Spectrum",
    "DynamicYaRN",
    "YaRN",
]
