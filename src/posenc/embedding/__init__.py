"""Hook point 1, token embeddings: x_t ← x_t + e(p_t). One file, one encoding."""

from posenc.embedding._resize import resize_grid as resize_grid
from posenc.embedding.abacus import Abacus as Abacus
from posenc.embedding.learned import Learned as Learned
from posenc.embedding.learned import grow_table as grow_table
from posenc.embedding.learned_grid import LearnedGrid as LearnedGrid
from posenc.embedding.random_fourier import RandomFourier as RandomFourier
from posenc.embedding.sinusoidal import Sinusoidal as Sinusoidal
from posenc.embedding.sinusoidal_grid import SinusoidalGrid as SinusoidalGrid

__all__ = [
    "resize_grid",
    "Abacus",
    "Learned",
    "grow_table",
    "LearnedGrid",
    "RandomFourier",
    "Sinusoidal",
    "SinusoidalGrid",
]
