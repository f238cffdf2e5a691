"""Hook point 5, weights: a_i· ← w(s_i·), instead of softmax. One file, one encoding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from posenc.lazy_imports import lazy_names

if TYPE_CHECKING:
    from posenc.weight.sink import AttentionSink as AttentionSink
    from posenc.weight.stick_breaking import StickBreaking as StickBreaking

HOMES = {  # the module of each name, in the order of the catalogue
    "posenc.weight.stick_breaking": "StickBreaking",
    "posenc.weight.sink": "AttentionSink",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, HOMES)
