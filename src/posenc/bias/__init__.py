"""Hook point 3, scores: s_ij ← s_ij + b_h(p_i, p_j), a term of positions alone. One file, one encoding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from posenc.lazy_imports import lazy_names

if TYPE_CHECKING:
    from posenc.bias.alibi import ALiBi as ALiBi
    from posenc.bias.alibi import alibi_slopes as alibi_slopes
    from posenc.bias.alibi_2d import ALiBi2D as ALiBi2D
    from posenc.bias.beit import BEiTBias as BEiTBias
    from posenc.bias.cpb import LogCPB as LogCPB
    from posenc.bias.distance import DistanceBias as DistanceBias
    from posenc.bias.fire import FIRE as FIRE
    from posenc.bias.kerple import KERPLE as KERPLE
    from posenc.bias.mlp import DistanceMLP as DistanceMLP
    from posenc.bias.offset import OffsetBias as OffsetBias
    from posenc.bias.sandwich import Sandwich as Sandwich
    from posenc.bias.swin import SwinBias as SwinBias
    from posenc.bias.t5 import T5Bias as T5Bias
    from posenc.bias.t5_grid import T5GridBias as T5GridBias

HOMES = {  # the module of each name, in the order of the catalogue
    "posenc.bias.alibi": "ALiBi alibi_slopes",
    "posenc.bias.t5": "T5Bias",
    "posenc.bias.kerple": "KERPLE",
    "posenc.bias.sandwich": "Sandwich",
    "posenc.bias.fire": "FIRE",
    "posenc.bias.cpb": "LogCPB",
    "posenc.bias.mlp": "DistanceMLP",
    "posenc.bias.swin": "SwinBias",
    "posenc.bias.beit": "BEiTBias",
    "posenc.bias.alibi_2d": "ALiBi2D",
    "posenc.bias.t5_grid": "T5GridBias",
    "posenc.bias.distance": "DistanceBias",
    "posenc.bias.offset": "OffsetBias",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, HOMES)
