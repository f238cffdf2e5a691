"""Frequencies: a `Spectrum`, the exact angles (`phase`), and scalings from a spectrum to a spectrum, one a file.

A file has the formula, which needs no torch; here are the modules that stand in models (`modules`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from posenc.lazy_imports import lazy_names

if TYPE_CHECKING:
    from posenc.frequencies.bases import base_for as base_for
    from posenc.frequencies.clex import CLEX as CLEX
    from posenc.frequencies.clipped import Clipped as Clipped
    from posenc.frequencies.modules import DynamicLongRoPE as DynamicLongRoPE
    from posenc.frequencies.modules import DynamicNTK as DynamicNTK
    from posenc.frequencies.modules import DynamicPositionInterpolation as DynamicPositionInterpolation
    from posenc.frequencies.modules import DynamicYaRN as DynamicYaRN
    from posenc.frequencies.modules import DyPE as DyPE
    from posenc.frequencies.modules import Llama3 as Llama3
    from posenc.frequencies.modules import LongRoPE as LongRoPE
    from posenc.frequencies.modules import NTKAware as NTKAware
    from posenc.frequencies.modules import NTKByParts as NTKByParts
    from posenc.frequencies.modules import PartNTK as PartNTK
    from posenc.frequencies.modules import PositionInterpolation as PositionInterpolation
    from posenc.frequencies.modules import Proportional as Proportional
    from posenc.frequencies.modules import RIFLEx as RIFLEx
    from posenc.frequencies.modules import YaRN as YaRN
    from posenc.frequencies.multiscale import MultiScale as MultiScale
    from posenc.frequencies.resonance import Resonance as Resonance
    from posenc.frequencies.riflex import identify_k as identify_k
    from posenc.frequencies.spectrum import Scaling as Scaling
    from posenc.frequencies.spectrum import Spectrum as Spectrum

HOMES = {  # the module of each name, in the order of the catalogue
    "posenc.frequencies.modules": "PositionInterpolation DynamicPositionInterpolation NTKAware DynamicNTK NTKByParts "
    "PartNTK YaRN DynamicYaRN Llama3 LongRoPE DynamicLongRoPE RIFLEx DyPE Proportional",
    "posenc.frequencies.resonance": "Resonance",
    "posenc.frequencies.clex": "CLEX",
    "posenc.frequencies.multiscale": "MultiScale",
    "posenc.frequencies.clipped": "Clipped",
    "posenc.frequencies.spectrum": "Scaling Spectrum",
    "posenc.frequencies.bases": "base_for",
    "posenc.frequencies.riflex": "identify_k",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, HOMES)
