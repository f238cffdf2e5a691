"""Entries: embeddings of tokens that lie on a grid."""

from __future__ import annotations

import math

from posenc.catalogue.entry import Entry, Shape
from posenc.embedding.learned_grid import LearnedGrid
from posenc.embedding.random_fourier import RandomFourier
from posenc.embedding.sinusoidal_grid import SinusoidalGrid


def square(shape: Shape) -> dict[str, object]:
    """The smallest square grid that has a place for max_length tokens."""
    tokens = shape.get("max_length")
    if not isinstance(tokens, int) or tokens < 1:
        return {}
    side = math.isqrt(tokens - 1) + 1
    return {"size": (side, side)}


ENTRIES = (
    Entry(
        name="sinusoidal_grid",
        hook_point="embedding",
        encoding=SinusoidalGrid,
        title="Sinusoidal embedding of a grid, 2D sin-cos",
        formula="x_t ← x_t + [sin p_a·theta_i, cos p_a·theta_i] of each axis a,  theta_i = base^(−2·axes·i/dim)",
        source="Chen et al., arXiv 2104.02057, section 5; Beyer et al., arXiv 2205.01580, section 2",
        parameters="none",
        cost="one addition per token, once",
        past_training="sums of waves never seen in training",
        reads="positions",
        extension="coordinates rescaled to the training range",
        used_in="MAE (arXiv 2111.06377); DiT (arXiv 2212.09748); Stable Diffusion 3 (arXiv 2403.03206); CogVideoX-2B "
        "(arXiv 2408.06072)",
    ),
    Entry(
        name="learned_grid",
        hook_point="embedding",
        encoding=LearnedGrid,
        title="Learned embedding of a grid",
        formula="x_t ← x_t + table[place of p], interpolated between places",
        source="Dosovitskiy et al., arXiv 2010.11929, section 3.1",
        parameters="(prefix + positions) × dim",
        cost="one lookup and addition per token, once; 16 at fractional positions of two axes",
        past_training="undefined beyond the table; a larger grid needs a resized table",
        reads="positions",
        extension="the table resized by interpolation (resized)",
        used_in="ViT (arXiv 2010.11929); CLIP's image encoder (arXiv 2103.00020)",
        defaults=square,
        exempt={"far_positions": "a table ends"},
    ),
    Entry(
        name="random_fourier",
        hook_point="embedding",
        encoding=RandomFourier,
        title="Random Fourier features, as in SAM's prompt encoder",
        formula="x_t ← x_t + [sin 2π·p·f, cos 2π·p·f],  f ~ scale·N(0, 1), drawn once",
        source="Tancik et al., arXiv 2006.10739, section 6.1",
        parameters="axes × dim/2, drawn once, learned on request",
        cost="one addition per token, once",
        past_training="sums of waves never seen in training",
        reads="positions",
        extension="coordinates rescaled to the training range",
        used_in="SAM (arXiv 2304.02643)",
    ),
)
