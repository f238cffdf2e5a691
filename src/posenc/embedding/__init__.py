"""Hook point 1, token embeddings: x_t ← x_t + e(p_t). One file, one encoding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from posenc.lazy_imports import lazy_names

if TYPE_CHECKING:
    from posenc.embedding._resize import resize_grid as resize_grid
    from posenc.embedding.abacus import Abacus as Abacus
    from posenc.embedding.learned import Learned as Learned
    from posenc.embedding.learned import grow_table as grow_table
    from posenc.embedding.learned_grid import LearnedGrid as LearnedGrid
    from posenc.embedding.random_fourier import RandomFourier as RandomFourier
    from posenc.embedding.sinusoidal import Sinusoidal as Sinusoidal
    from posenc.embedding.sinusoidal_grid import SinusoidalGrid as SinusoidalGrid

HOMES = {  # the module of each name, in the order of the catalogue
    "posenc.embedding.sinusoidal": "Sinusoidal",
    "posenc.embedding.learned": "Learned grow_table",
    "posenc.embedding.abacus": "Abacus",
    "posenc.embedding.sinusoidal_grid": "SinusoidalGrid",
    "posenc.embedding.learned_grid": "LearnedGrid",
    "posenc.embedding.random_fourier": "RandomFourier",
    "posenc.embedding._resize": "resize_grid",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, HOMES)
