"""Hook point 2, queries and keys: q, k ← R(p) q, R(p) k. Only ``_rotate`` rotates channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from posenc.lazy_imports import lazy_names

if TYPE_CHECKING:
    from posenc.rotary._layout import permute_layout as permute_layout
    from posenc.rotary._skew import skew_exponential as skew_exponential
    from posenc.rotary.axial import AxialRoPE as AxialRoPE
    from posenc.rotary.comrope import ComRoPEAP as ComRoPEAP
    from posenc.rotary.comrope import ComRoPELD as ComRoPELD
    from posenc.rotary.fope import FoPE as FoPE
    from posenc.rotary.grape import GRAPEM as GRAPEM
    from posenc.rotary.liere import LieRE as LieRE
    from posenc.rotary.mhrope import MHRoPE as MHRoPE
    from posenc.rotary.mixed import MixedRoPE as MixedRoPE
    from posenc.rotary.mrope import MRoPE as MRoPE
    from posenc.rotary.mrope import pair_order as pair_order
    from posenc.rotary.pope import PoPE as PoPE
    from posenc.rotary.rope import RoPE as RoPE
    from posenc.rotary.rope_pp import RoPEpp as RoPEpp
    from posenc.rotary.vjepa import VJEPARoPE as VJEPARoPE

HOMES = {  # the module of each name, in the order of the catalogue
    "posenc.rotary.rope": "RoPE",
    "posenc.rotary.fope": "FoPE",
    "posenc.rotary.pope": "PoPE",
    "posenc.rotary.rope_pp": "RoPEpp",
    "posenc.rotary.grape": "GRAPEM",
    "posenc.rotary.axial": "AxialRoPE",
    "posenc.rotary.mixed": "MixedRoPE",
    "posenc.rotary.mrope": "MRoPE pair_order",
    "posenc.rotary.mhrope": "MHRoPE",
    "posenc.rotary.vjepa": "VJEPARoPE",
    "posenc.rotary.liere": "LieRE",
    "posenc.rotary.comrope": "ComRoPEAP ComRoPELD",
    "posenc.rotary._layout": "permute_layout",
    "posenc.rotary._skew": "skew_exponential",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, HOMES)
