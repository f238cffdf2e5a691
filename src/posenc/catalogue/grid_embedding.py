"""Entries: embeddings of tokens that lie on a grid."""

from __future__ import annotations

import math

from posenc.catalogue.entry import Entry, Shape
from posenc.embedding.learned_grid import LearnedGrid
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
        place="embedding",
        encoding=SinusoidalGrid,
        title="Sinusoidal embedding of a grid, 2D sin-cos",
        formula="x_t ← x_t + [sin p_a·theta_i, cos p_a·theta_i] of each axis a,  theta_i = base^(−2·axes·i/dim)",
        source="Chen et al., arXiv 2104.02057, section 5; Beyer et al., arXiv 2205.01580, section 2",
        parameters="none",
        cost="one addition a token, once",
        past_training="sums of waves never seen in training",
    ),
    Entry(
        name="learned_grid",
        place="embedding",
        encoding=LearnedGrid,
        title="Learned embedding of a grid",
        formula="x_t ← x_t + table[place of p], interpolated between places",
        source="Dosovitskiy et al., arXiv 2010.11929, section 3.1",
        parameters="(prefix + places) × dim",
        cost="one lookup and addition a token, once; 16 at fractional places of two axes",
        past_training="undefined past the table; a larger grid is a resized table",
        defaults=square,
        exempt={"far_positions": "a table ends"},
    ),
)
