"""Hook point 4, scores: s_i· ← f(s_i·; q, k, tokens), given queries, keys and tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from posenc.lazy_imports import lazy_names

if TYPE_CHECKING:
    from posenc.score.cope import CoPE as CoPE
    from posenc.score.dape import DAPE as DAPE
    from posenc.score.decomposed import DecomposedRelative as DecomposedRelative
    from posenc.score.forget import ForgetGate as ForgetGate
    from posenc.score.grape import GRAPEA as GRAPEA
    from posenc.score.grape import GRAPEAP as GRAPEAP
    from posenc.score.grape import GRAPEContext as GRAPEContext
    from posenc.score.mixture import Mixture as Mixture
    from posenc.score.path import PaTH as PaTH
    from posenc.score.path import reflected as reflected
    from posenc.score.remapped import STRING as STRING
    from posenc.score.remapped import DualChunk as DualChunk
    from posenc.score.remapped import LeakyReRoPE as LeakyReRoPE
    from posenc.score.remapped import LMInfinite as LMInfinite
    from posenc.score.remapped import ReRoPE as ReRoPE
    from posenc.score.remapped import SelfExtend as SelfExtend
    from posenc.score.remapped import StreamingLLM as StreamingLLM
    from posenc.score.repo import RePo as RePo
    from posenc.score.selective_rope import SelectiveRoPE as SelectiveRoPE
    from posenc.score.shaw import Shaw as Shaw
    from posenc.score.temperature import LogN as LogN
    from posenc.score.temperature import PowerTemperature as PowerTemperature
    from posenc.score.temperature import SSMax as SSMax
    from posenc.score.temperature import StepTemperature as StepTemperature
    from posenc.score.token_relative import TokenRelativeBias as TokenRelativeBias
    from posenc.score.transformer_xl import TransformerXL as TransformerXL
    from posenc.score.xpos import XPos as XPos

HOMES = {  # the module of each name, in the order of the catalogue
    "posenc.score.xpos": "XPos",
    "posenc.score.shaw": "Shaw",
    "posenc.score.decomposed": "DecomposedRelative",
    "posenc.score.forget": "ForgetGate",
    "posenc.score.path": "PaTH reflected",
    "posenc.score.transformer_xl": "TransformerXL",
    "posenc.score.cope": "CoPE",
    "posenc.score.dape": "DAPE",
    "posenc.score.token_relative": "TokenRelativeBias",
    "posenc.score.mixture": "Mixture",
    "posenc.score.selective_rope": "SelectiveRoPE",
    "posenc.score.repo": "RePo",
    "posenc.score.grape": "GRAPEContext GRAPEA GRAPEAP",
    "posenc.score.temperature": "LogN PowerTemperature SSMax StepTemperature",
    "posenc.score.remapped": "SelfExtend LeakyReRoPE ReRoPE DualChunk STRING LMInfinite StreamingLLM",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, HOMES)
