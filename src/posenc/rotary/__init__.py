"""Hook point 2, queries and keys: q, k ← R(p) q, R(p) k. Only ``_rotate`` rotates channels."""

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

__all__ = [
    "pair_order",
    "permute_layout",
    "skew_exponential",
    "AxialRoPE",
    "ComRoPEAP",
    "ComRoPELD",
    "FoPE",
    "GRAPEM",
    "LieRE",
    "MHRoPE",
    "MixedRoPE",
    "MRoPE",
    "PoPE",
    "RoPE",
    "RoPEpp",
    "VJEPARoPE",
]
