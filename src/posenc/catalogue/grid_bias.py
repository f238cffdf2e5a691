"""Entries: biases between tokens that lie on a grid."""

from __future__ import annotations

import math

from posenc.bias.alibi_2d import ALiBi2D
from posenc.bias.beit import BEiTBias
from posenc.bias.swin import SwinBias
from posenc.bias.t5_grid import T5GridBias
from posenc.catalogue.entry import Entry, Shape

ENTRIES = (
    Entry(
        name="swin",
        hook_point="bias",
        encoding=SwinBias,
        title="Swin: one learned number per difference of coordinates in a window",
        formula="s_ij ← s_ij + table[p_i − p_j, h]",
        source="Liu et al., arXiv 2103.14030, section 3.2, eq. 4",
        parameters="(2·height − 1) × (2·width − 1) × heads",
        cost="one lookup for every query and key; its gradient",
        past_training="differences outside the window use the table's edge; resized(window) interpolates the table",
        reads="distances",
        extension="the table resized by interpolation (resized)",
        used_in="Swin Transformer (arXiv 2103.14030)",
        defaults=lambda shape: square_window(shape, 7),
    ),
    Entry(
        name="beit",
        hook_point="bias",
        encoding=BEiTBias,
        title="BEiT: Swin's table with numbers for the class token",
        formula="s_ij ← s_ij + table[p_i − p_j, h];  three rows for pairs with tokens without a place",
        source="Bao et al., arXiv 2106.08254, appendix; the authors' code",
        parameters="((2·height − 1) × (2·width − 1) + 3) × heads",
        cost="one lookup for every query and key; its gradient",
        past_training="differences outside the window use the table's edge; resized(window) interpolates the table",
        reads="distances",
        extension="the table resized by interpolation (resized)",
        used_in="BEiT (arXiv 2106.08254)",
        defaults=lambda shape: square_window(shape, 14),
    ),
    Entry(
        name="alibi_2d",
        hook_point="bias",
        encoding=ALiBi2D,
        title="2D ALiBi: linear biases of the distance in the plane",
        formula="s_ij ← s_ij − m_h · ‖p_i − p_j‖,  m_h = 2^(−8h/heads)",
        source="Fuller et al., arXiv 2311.00566, section 3",
        parameters="none",
        cost="a distance for every query and key",
        past_training="larger penalties on farther keys: near keys keep their weight",
        reads="distances",
        extension="none needed by its definition",
        used_in="CROMA (arXiv 2311.00566)",
    ),
    Entry(
        name="t5_grid",
        hook_point="bias",
        encoding=T5GridBias,
        title="T5's buckets along several axes, as in LayoutLM and UDOP",
        formula="s_ij ← s_ij + Σ_axis table_axis[bucket(p_j − p_i), h]",
        source="Xu et al., arXiv 2012.14740, section 2.1",
        parameters="num_buckets × heads per axis, shared by all layers",
        cost="one lookup per axis for every query and key; its gradient",
        past_training="all differences from max_distance on share one bucket per axis and direction",
        reads="distances",
        extension="none needed by its definition; far keys share the last bucket",
        used_in="LayoutLMv2 (arXiv 2012.14740); UDOP (arXiv 2212.02623)",
    ),
)


def square_window(shape: Shape, side: int) -> dict[str, object]:
    """The smallest square window that holds the tokens of training; where they are not known, the source's own."""
    train_length = shape.get("train_length")
    side = math.isqrt(train_length - 1) + 1 if isinstance(train_length, int) else side
    return {"window": (side, side)}
