"""Where tokens are, first in tokens of the trained grid, then as each encoding was made to read it.

    tokens     row, column = i, j                 exact while they are whole
    unit       i / (n − 1), from 0 to 1           LieRE
    centres    (i + ½) / n, between 0 and 1       ComRoPE

n tokens each way in training. What is asked of an encoding is the same for all in tokens; n never changes with it.
"""

from __future__ import annotations

from torch import Tensor

from posenc.encoding import Encoding
from posenc.positions import centred, spaced

AXES = 2
CONVENTIONS = {"LieRE": "unit", "ComRoPEAP": "centres", "ComRoPELD": "centres"}  # by class; tokens for all others


def convention_of(encoding: Encoding) -> str:
    """Which coordinates an encoding reads."""
    return CONVENTIONS.get(type(encoding).__name__, "tokens")


def convert(places: Tensor, convention: str, grid: int) -> Tensor:
    """Coordinates ``(tokens, 2)`` in tokens of the trained grid, as a convention has them."""
    if convention == "unit":
        return spaced(places, grid, trained=grid)
    if convention == "centres":
        return centred(places, grid)
    return places


def inside(places: Tensor, grid: int) -> bool:
    """Whether all places lie on the trained grid, or within half a token of it: there a table has numbers."""
    return bool((places >= -0.5).all()) and bool((places <= grid - 0.5).all())
